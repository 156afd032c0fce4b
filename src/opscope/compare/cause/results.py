# SPDX-License-Identifier: Apache-2.0
"""What two programs come to: losses, and what their models hand out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.handed_out import handed_out
from opscope.compare.cause.what_matters import FORWARD
from opscope.compare.pair.unpaired import half_compiled
from opscope.compare.side.call_rows import inputs_of, places_of, steps_of
from opscope.compare.side.columns import ABSENT, API
from opscope.compare.side.contents import (
    bears_identities,
    begins_backward,
    calls_back,
    forward_of,
    in_dumps,
)
from opscope.compare.side.lowering import STAGED, spelling, worlds_apart
from opscope.operators.catalogue import family, traits_of
from opscope.operators.spelling import TENSORFLOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opscope.arrays import Bools, Floats, Ints
    from opscope.compare.cause.trained_states import Apart
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side


def results_apart(
    pairing: Pairing,
    meetings: Meetings,
    unmet: tuple[Bools, Bools],
    dim: tuple[Bools, Bools],
    *,
    alike: Callable[[], bool | None],
) -> Iterator[Apart]:
    """Losses, and what the outermost modules hand out, that meet nothing on the other side.

    Where that has none, as without an evaluation at the end, or fewer, which all are among them,
    nothing is missed; nor, beside losses, or where neither trains or both read out the same numbers
    (alike), where it has none of as many elements that meets nothing either: these show what a
    model computes, and an evaluation may be cut otherwise, or handed out in another form. Where a
    side shows none at all, what the two come to has to be apart on both; where neither does, by
    more than rounding of what it is made of.
    """
    sides, flows = (pairing.target, pairing.golden), pairing.flows
    losses = [losses_of(side, flow.source_row) for side, flow in zip(sides, flows, strict=True)]
    losses = [_as_lost(pairing, meetings, unmet, losses, number) for number in (0, 1)]
    results = [
        np.union1d(rows, handed_out(side, flow.source_row, rows))
        for side, flow, rows in zip(sides, flows, losses, strict=True)
    ]
    shown = [len(rows) > 0 for rows in results]
    if not all(shown):
        if in_dumps(*sides) if any(shown) else half_compiled(pairing):
            return  # what a dump shows last is no loss; what the graph made is judged by itself
        results = [
            rows if len(rows) else last_results(side, flow.source_row)
            for side, flow, rows in zip(sides, flows, results, strict=True)
        ]
        if any(shown) and any(map(_of_apis, sides)) and len(results[0]) != len(results[1]):
            return  # losses of parts of a batch, of which one side's APIs do not tell
    apart = [flags[rows] & ~no[rows] for flags, no, rows in zip(unmet, dim, results, strict=True)]
    if not any(shown):
        columns = zip(sides, results, apart, meetings.error, meetings.limit, strict=True)
        apart = [flags & ~_cancelled(side, rows, *by) for side, rows, flags, *by in columns]
    if not all(shown) and not all(flags.any() for flags in apart):
        return
    if not any(flags.any() for flags in apart):
        return
    by_place = [_by_place(side, rows) for side, rows in zip(sides, results, strict=True)]
    fewer = _fewer(pairing, meetings, unmet, by_place)
    shows = all(map(len, losses)) or infer(pairing) or bool(alike())
    for number, rows in enumerate(results):
        alone = rows[apart[number]]
        for row, place in zip(alone.tolist(), places_of(sides[number], alone), strict=True):
            others = np.array(by_place[1 - number].get(place, []), dtype=np.int64)
            if shows and row not in losses[number]:
                others = others[unmet[1 - number][others]]
                others = others[
                    sides[1 - number].tensors.size[others] == sides[number].tensors.size[row]
                ]
            if len(others) and place not in fewer:
                yield place, FORWARD, ([row], []) if number == 0 else ([], [row])


def losses_beside(
    pairing: Pairing, meetings: Meetings, unmet: tuple[Bools, Bools]
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Of each loss of either side the other's that was computed in its place, where a step has as
    many on both, and neither is one of the other side's: a loss may meet what the other computes on
    the way to its own.
    """
    sides = pairing.target, pairing.golden
    columns = zip(sides, pairing.flows, strict=True)
    losses = [losses_of(side, flow.source_row) for side, flow in columns]
    by_place = [_by_place(side, rows) for side, rows in zip(sides, losses, strict=True)]
    met = [losses_met(pairing, meetings, unmet, number) for number in (0, 1)]
    counterparts = dict[int, list[int]](), dict[int, list[int]]()
    for place in by_place[0].keys() & by_place[1].keys():
        rows = [known[place] for known in by_place]
        if len(rows[0]) != len(rows[1]):
            continue
        for mine, theirs in zip(*rows, strict=True):
            if not (met[0][mine] or met[1][theirs]):
                counterparts[0][mine], counterparts[1][theirs] = [theirs], [mine]
    return counterparts


def infer(pairing: Pairing) -> bool:
    """Whether two runs of one world train nothing: neither has a backward pass or an optimizer."""
    sides = pairing.target, pairing.golden
    trained = [side.in_phase(phase) for side in sides for phase in ("backward", "optimizer")]
    known = all(map(bears_identities, sides)) and not worlds_apart(*sides)
    return known and not any(flags.any() for flags in trained)


def _of_apis(side: Side) -> bool:
    """Whether a run shows no calls of backward passes, but APIs that begin them."""
    return bool((side.calls.level == API).any()) and not side.in_phase("backward").any()


def comparable(pairing: Pairing, *, alike: Callable[[], bool | None]) -> bool:
    """Whether results of the two can be held against each other: not where neither is trained, they
    do not read out as many numbers (alike is None), and most of what their models hand out is of
    sizes of which the other hands out more or less, as where one reads each text by itself and the
    other all at once.
    """
    sides, flows = (pairing.target, pairing.golden), pairing.flows
    if all(len(losses_of(side, flow.source_row)) for side, flow in zip(sides, flows, strict=True)):
        return True
    sizes = list[Counter[int]]()
    for side, flow in zip(sides, flows, strict=True):
        rows = handed_out(side, flow.source_row, losses_of(side, flow.source_row))
        _, first = np.unique(flow.state[rows], return_index=True)  # data may be read twice
        sizes.append(Counter(side.tensors.size[rows[first]].tolist()))
    fewer = min(size.total() for size in sizes)
    often = sum(count for size, count in sizes[0].items() if sizes[1][size] == count)
    return 2 * often >= fewer or alike() is not None


def _cancelled(side: Side, rows: Ints, error: Floats, limit: Floats) -> Bools:
    """Which rows are no further apart than what made them may be by rounding of what it reads."""
    tensors = side.tensors
    reach = np.nan_to_num(np.fmax(np.abs(tensors.min), np.abs(tensors.max)), nan=0.0)
    read = [
        max((float(reach[given]) for given in inputs_of(side, int(call))), default=0.0)
        for call in tensors.call[rows]
    ]
    with np.errstate(invalid="ignore"):
        cancelled: Bools = error[rows] * reach[rows] <= limit[rows] * np.array(read)
    return cancelled


def _by_place(side: Side, rows: Ints) -> dict[Place, list[int]]:
    """Rows by rank and step."""
    by_place: dict[Place, list[int]] = {}
    for place, row in zip(places_of(side, rows), rows.tolist(), strict=True):
        by_place.setdefault(place, []).append(row)
    return by_place


def _fewer(
    pairing: Pairing,
    meetings: Meetings,
    unmet: tuple[Bools, Bools],
    by_place: list[dict[Place, list[int]]],
) -> set[Place]:
    """Ranks and steps of which one side hands out less, and all of that the other does too."""
    fewer = set()
    for place in by_place[0].keys() & by_place[1].keys():
        number = int(len(by_place[1][place]) < len(by_place[0][place]))
        less, more = by_place[number][place], by_place[1 - number][place]
        states = pairing.flows[1 - number].state
        among = {int(states[row]) for row in more}
        partners = meetings.partner[number]
        if len(less) < len(more) and all(
            not unmet[number][row] and partners[row] >= 0 and int(states[partners[row]]) in among
            for row in less
        ):
            fewer.add(place)
    return fewer


def endings(side: Side, source: Ints) -> Ints:
    """The rows of leaf calls that hold a loss or what a model hands out."""
    losses = losses_of(side, source)
    return np.union1d(losses, handed_out(side, source, losses))


def losses_of(side: Side, source: Ints) -> Ints:
    """The rows that hold numbers which a backward pass starts from; of MindSpore and TensorFlow,
    which start it from a 1, what nothing of the forward pass reads.
    """
    if spelling(side) in STAGED:
        return _unread_numbers(side, source)
    if not bears_identities(side):
        return _gone_back_from(side, source)
    calls, tensors = side.calls, side.tensors
    backward = np.flatnonzero(side.in_phase("backward"))
    if not len(backward):
        return _called_back(side, source)
    _, first = np.unique(steps_of(side)[backward], return_index=True)
    roots = side.which(calls.op, lambda op: family(op) == "ones_like")[backward]
    starts = np.union1d(backward[first], backward[roots])
    read = source[~tensors.output & np.isin(tensors.call, starts) & (tensors.size == 1)]
    rows: Ints = np.unique(read[read >= 0])
    return rows


def _called_back(side: Side, source: Ints) -> Ints:
    """The numbers that APIs which run a backward pass are given, where none of its own calls was
    recorded.
    """
    tensors = side.tensors
    given = ~tensors.output & calls_back(side)[tensors.call] & (tensors.size == 1)
    read = source[given]
    rows: Ints = np.unique(read[read >= 0])
    return rows


def _gone_back_from(side: Side, source: Ints) -> Ints:
    """The numbers of which the gradients are what each backward pass of a dump begins with."""
    tensors = side.tensors
    forward = forward_of(side)[begins_backward(side, source)]
    made = tensors.output & (tensors.size == 1)
    rows: Ints = np.flatnonzero(made & np.isin(tensors.call, forward[forward >= 0]))
    return rows


def losses_met(
    pairing: Pairing, meetings: Meetings, unmet: tuple[Bools, Bools], number: int
) -> Bools:
    """The rows of a side that agree with a loss of the other."""
    other, flow = (pairing.golden, pairing.target)[number], pairing.flows[1 - number]
    losses, partner = losses_of(other, flow.source_row), meetings.partner[number]
    met: Bools = np.isin(flow.state[partner], flow.state[losses])
    return met & (partner >= 0) & ~unmet[number]


def _unread_numbers(side: Side, source: Ints) -> Ints:
    """The last number of each forward pass that goes before a backward one, or beside it, which no
    call of the forward pass reads.
    """
    tensors, step = side.tensors, steps_of(side)
    trained = np.isin(step, step[side.in_phase("backward")])[tensors.call]
    rows = np.flatnonzero(_numbers(side) & trained)
    rows = np.setdiff1d(rows, source[~tensors.output & _of_forward(side)])
    return _last_of_steps(side, rows)


def _as_lost(
    pairing: Pairing,
    meetings: Meetings,
    unmet: tuple[Bools, Bools],
    losses: list[Ints],
    number: int,
) -> Ints:
    """The losses of a side; of TensorFlow's, which does not show what a backward pass begins with,
    in each step the number that is a loss of the other side, else the last before the backward
    pass that agrees with nothing: what nothing reads may be a mean over steps, as Keras keeps.
    """
    sides, mine = (pairing.target, pairing.golden), losses[number]
    side, tensors = sides[number], sides[number].tensors
    if spelling(side) != TENSORFLOW or spelling(sides[1 - number]) == TENSORFLOW:
        return mine
    numbers, step = _numbers(side), steps_of(side)
    backward = np.flatnonzero(side.in_phase("backward"))
    trained, first = np.unique(step[backward], return_index=True)
    begun = dict(zip(trained.tolist(), backward[first].tolist(), strict=True))
    chosen = dict(zip(step[tensors.call[mine]].tolist(), mine.tolist(), strict=True))
    met = losses_met(pairing, meetings, unmet, number)
    for row in np.flatnonzero(numbers & unmet[number]).tolist():
        at = int(step[tensors.call[row]])
        if tensors.call[row] < begun.get(at, 0):
            chosen[at] = row
    for row in np.flatnonzero(numbers & met)[::-1].tolist():
        chosen[int(step[tensors.call[row]])] = row
    return np.array(sorted(chosen.values()), dtype=np.int64)


def _numbers(side: Side) -> Bools:
    """Rows of single floats that calls of a forward pass make, and keep nowhere."""
    tensors = side.tensors
    floats = (tensors.min_int == ABSENT) & np.isfinite(tensors.l2norm) & ~tensors.parameter
    numbers: Bools = floats & (tensors.size == 1) & tensors.output & _of_forward(side)
    return numbers


def _of_forward(side: Side) -> Bools:
    """Rows of leaf calls of forward passes."""
    return (side.calls.leaf & side.in_phase("forward"))[side.tensors.call]


def read_out(side: Side) -> Ints:
    """The rows that leaf calls read which make nothing: what a program reads out as numbers, in the
    order in which it does.
    """
    tensors, calls = side.tensors, side.calls
    makes = np.zeros(len(calls), dtype=np.bool_)
    makes[tensors.call[tensors.output]] = True
    reads = ~tensors.output & (calls.leaf & ~makes)[tensors.call]
    if not bears_identities(side):  # of a backward call a dump may show only what it reads
        reads &= _of_forward(side)
    elif (calls.level == API).any():  # most of those ask for a shape or a type
        leaves = side.which(calls.op, lambda op: traits_of(op).leaves)
        reads &= (leaves | (calls.level != API))[tensors.call]
    rows: Ints = np.flatnonzero(reads)
    return rows


def last_results(side: Side, source: Ints) -> Ints:
    """The rows of leaf calls that hold what a program without models or gradients comes to: what it
    reads out as a number, else what it makes last of all that no call reads.
    """
    tensors = side.tensors
    leaf = side.calls.leaf[tensors.call] & (tensors.size > 0)
    rows = read_out(side)
    read = source[rows[tensors.size[rows] > 0]]
    read = np.unique(read[read >= 0])
    numbers = read[tensors.min_int[read] == ABSENT]
    if len(read):  # whole ones beside others are counts: of tokens, of what was right
        last: Ints = numbers if len(numbers) else read
        return last
    if not bears_identities(side):  # which show more behind it: gradients, and what updates make
        leaf &= _of_forward(side)
    unread = np.flatnonzero(tensors.output & leaf)
    unread = np.setdiff1d(unread, source[~tensors.output & leaf])
    return unread[-1:] if bears_identities(side) else _last_of_steps(side, unread)


def _last_of_steps(side: Side, rows: Ints) -> Ints:
    """The last of some rows in each step."""
    _, last = np.unique(steps_of(side)[side.tensors.call[rows]][::-1], return_index=True)
    of_steps: Ints = np.sort(rows[::-1][last])
    return of_steps
