# SPDX-License-Identifier: Apache-2.0
"""Layers through which gradients flow on one side alone: a detach that is missing, or one too many.

A call of the forward pass lets gradients through where a call of the backward pass belongs to it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opscope.compare.cause.partings import Parting
from opscope.compare.pair.parameters import learnt_names
from opscope.compare.side.call_rows import inputs_of
from opscope.compare.side.lowering import STAGED, spelling
from opscope.operators.catalogue import traits_of
from opscope.run.keys import NONE, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opscope.arrays import Bools, Ints, Words
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

MISSES = (
    "gradients flow back through it, through golden's they do not: a detach is missing, or it is "
    "frozen there"
)
MOST_CALLS = 64  # without gradients, on the way to what has some
CUTS = "no gradients flow back through it, through golden's they do: it is detached, or frozen"


class Path(NamedTuple):
    """Calls of either side that belong together, of which one side's alone has gradients, or trains
    something, and words for it; where both read the same, those that made it.
    """

    mine: int
    theirs: int
    words: str
    made: tuple[int, ...] = ()


def one_sided(
    pairing: Pairing, meetings: Meetings, vague: Bools, place: tuple[int, int]
) -> Path | None:
    """The last calls of a rank and step behind a layer with parameters that meet though gradients
    flow through one side's alone; None where there are none, where a side does not know through
    which they flow, or where they flow through golden's behind a layer and through the target's
    elsewhere, as where it computes again with gradients what it collected without.

    vague: rows of the target of which statistics tell nothing.
    """
    misses = False
    for rows, words in _rows_on_one_side(pairing, meetings, vague, place):
        row = _behind_a_layer(pairing, rows)
        if row != NONE and not misses:
            return _path(pairing, meetings, row, words)
        misses = misses or any(map(partial(_computes, pairing), rows.tolist()))
    return None


def parted_by(sides: tuple[Side, Side], path: Path, place: tuple[int, int], stage: int) -> Parting:
    """A rank and step in which two programs part by gradients, at calls of both sides that are told
    with those that their backward passes begin with: these say of what gradients are asked for.
    """
    starts = path.mine, path.theirs
    mine, theirs = (
        (
            start,
            *(call for call in path.made[number : number + 1] if call >= 0),
            *np.flatnonzero(calls_at(side, place) & side.in_phase("backward"))[:1].tolist(),
        )
        for number, (side, start) in enumerate(zip(sides, starts, strict=True))
    )
    return Parting(place, stage, starts, (mine, theirs), words=path.words)


def calls_at(side: Side, place: tuple[int, int]) -> Bools:
    """Calls of a rank and step."""
    here: Bools = (side.calls.rank == place[0]) & (side.calls.step == place[1])
    return here


def branching(
    pairing: Pairing, meetings: Meetings, vague: Bools, place: tuple[int, int]
) -> Path | None:
    """The first such calls that compute with what gradients flow back to on both sides: where one
    part of a sum of gradients is missing, no call of the backward pass tells which.
    """
    for rows, words in _rows_on_one_side(pairing, meetings, vague, place, least=1):
        number = 0 if words == CUTS else 1  # the side through which they do not flow
        back = with_gradients((pairing.target, pairing.golden)[number])
        graded = _contents(pairing, number, back, read=True)
        for row in rows.tolist():
            end = int(meetings.partner[0][row]) if number else row
            if _computes(pairing, row) and _reads_graded(pairing, number, end, back, graded):
                return _path(pairing, meetings, row, words)
    return None


def _reads_graded(pairing: Pairing, number: int, row: int, back: Bools, graded: Words) -> bool:
    """Whether what a call of a side without gradients made comes of something that gradients flow
    back to, by calls that have none either. back: calls that have some; graded: what these read or
    write.
    """
    side, flow = (pairing.target, pairing.golden)[number], pairing.flows[number]
    waiting, seen = [int(side.tensors.call[row])], set[int]()
    while waiting and len(seen) < MOST_CALLS:
        call = waiting.pop()
        if call in seen or back[call]:
            continue
        seen.add(call)
        read = [at for at in inputs_of(side, call) if not side.tensors.parameter[at]]
        if np.isin(flow.state[read], graded).any():
            return True
        waiting.extend(int(made) for made in flow.producer[read] if made >= 0)
    return False


def _computes(pairing: Pairing, row: int) -> bool:
    side = pairing.target
    return not traits_of(side.operator(int(side.tensors.call[row]))).idle


def _path(pairing: Pairing, meetings: Meetings, row: int, words: str) -> Path:
    golden = int(pairing.golden.tensors.call[meetings.partner[0][row]])
    return Path(int(pairing.target.tensors.call[row]), golden, words)


def _rows_on_one_side(
    pairing: Pairing,
    meetings: Meetings,
    vague: Bools,
    place: tuple[int, int],
    *,
    least: int = 2,
) -> Iterator[tuple[Ints, str]]:
    """The target's rows, of so many elements at least, that meet what has gradients, and have none,
    or the other way round.
    """
    target, golden = pairing.target, pairing.golden
    if not any(map(_tell, (target, golden))) or STAGED & {*map(spelling, (target, golden))}:
        return  # MindSpore shows a part of its backward passes, TensorFlow's calls are guessed
    back = with_gradients(target), with_gradients(golden)
    written = _contents(pairing, 0, back[0]), _contents(pairing, 1, back[1])
    touched = (
        _contents(pairing, 0, back[0], read=True),
        _contents(pairing, 1, back[1], read=True),
    )
    tensors, calls = target.tensors, target.calls
    here = calls_at(target, place) & _single(target) & calls.leaf
    rows = np.flatnonzero(
        tensors.output & here[tensors.call] & ~meetings.unmet(0) & ~vague & ~tensors.parameter
    )
    rows = rows[(meetings.partner[0][rows] >= 0) & (tensors.size[rows] >= least)]
    rows = rows[_single(golden)[golden.tensors.call[meetings.partner[0][rows]]]]
    partner = meetings.partner[0][rows]
    content = pairing.flows[0].state[rows], pairing.flows[1].state[partner]
    flows = [np.isin(content[number], written[number]) for number in (0, 1)]
    still = [~np.isin(content[number], touched[number]) for number in (0, 1)]
    hidden = _hidden(target, back[0]), _hidden(golden, back[1])
    yield rows[flows[0] & still[1] & (not hidden[1])], MISSES
    yield rows[still[0] & flows[1] & (not hidden[0])], CUTS


def _hidden(side: Side, back: Bools) -> bool:
    """Whether no call with a gradient computes with a parameter that gets one: an autograd function
    of the program's own does, whose calls have none.
    """
    tensors = side.tensors
    computes = side.in_phase("forward") & ~side.which(side.calls.op, lambda op: traits_of(op).idle)
    read = tensors.parameter & ~tensors.output & computes[tensors.call]
    graded = tensors.named[read & back[tensors.call]]
    learnt = np.intersect1d(tensors.named[read], learnt_names(side))
    return not np.isin(learnt, graded).all()


def _tell(side: Side) -> bool:
    return bool((side.calls.forward >= 0).any())


def _single(side: Side) -> Bools:
    """Calls of a forward pass that have backward passes of their own, not that of a graph."""
    return side.in_phase("forward") & (side.enclosing(side.graphs()) < 0)


def with_gradients(side: Side) -> Bools:
    """Calls to which one of the backward pass belongs."""
    calls = side.calls
    rows = np.flatnonzero(calls.forward >= 0)
    graded = np.zeros(len(calls), dtype=np.bool_)
    forward = place_of((calls.process[rows] << 40) | calls.forward[rows], calls.key)
    graded[forward[forward >= 0]] = True
    return graded


def _contents(pairing: Pairing, number: int, flowing: Bools, *, read: bool = False) -> Words:
    """What calls with gradients write, or read as well: a teacher that begins as a copy makes it,
    too, without.
    """
    side = (pairing.target, pairing.golden)[number]
    rows = np.flatnonzero((side.tensors.output | read) & flowing[side.tensors.call])
    return np.unique(pairing.flows[number].state[rows])


def _behind_a_layer(pairing: Pairing, rows: Ints) -> int:
    """The last of rows of the target that comes, by whatever calls, of a layer with parameters
    among them; NONE where there is none.
    """
    if not len(rows):
        return NONE
    side, producer = pairing.target, pairing.flows[0].producer
    tensors = side.tensors
    wanted = {int(tensors.call[row]): int(row) for row in rows.tolist()}
    first, stop = np.searchsorted(tensors.call, [min(wanted), max(wanted) + 1]).tolist()
    reached, last = set[int](), NONE
    for row in range(first, stop):
        call = int(tensors.call[row])
        if tensors.output[row]:
            last = wanted[call] if call in reached and call in wanted else last
        elif int(producer[row]) in reached or (call in wanted and tensors.parameter[row]):
            reached.add(call)
    return last
