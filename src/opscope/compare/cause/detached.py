# SPDX-License-Identifier: Apache-2.0
"""What one side alone reads as something that needs no gradients: a parameter, or what it computed
with gradients and detached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.gradient_paths import CUTS, MISSES, Path, calls_at, with_gradients
from opscope.compare.pair.parameters import learnt_names
from opscope.compare.side.call_rows import outputs_of
from opscope.compare.side.records import Cells
from opscope.operators.catalogue import family

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints, Words
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

HANDS = "a parameter that it reads gets gradients from it, golden's does not: a detach is missing"
KEEPS = "a parameter that it reads gets no gradients from it, golden's does: it is detached"
LEAST = 2  # elements of what is told of


def detached_alone(pairing: Pairing, meetings: Meetings, place: tuple[int, int]) -> Path | None:
    """Where one side alone reads a parameter, or what both compute with gradients, as something
    that needs none, in a rank and step; None where neither does.
    """
    return _held_back(pairing, meetings, place) or _cut_off(pairing, meetings, place)


def _held_back(pairing: Pairing, meetings: Meetings, place: tuple[int, int]) -> Path | None:
    """The first calls of a rank and step that make the same, and through both of which gradients
    flow, of which one side's alone reads a parameter that is detached; None where there are none.
    """
    sides, unmet = (pairing.target, pairing.golden), meetings.unmet(0)
    back = [with_gradients(side) for side in sides]
    calls, tensors = sides[0].calls, sides[0].tensors
    here = back[0] & calls_at(sides[0], place) & calls.leaf
    partner = meetings.partner[0]
    rows = np.flatnonzero(tensors.output & here[tensors.call] & ~unmet & (partner >= 0))
    met = tensors.call[rows], sides[1].tensors.call[partner[rows]]
    held = [_reads_detached(side, call) for side, call in zip(sides, met, strict=True)]
    apart = np.flatnonzero((held[0] != held[1]) & back[1][met[1]])
    if not len(apart):
        return None
    first = apart[0]
    return Path(int(met[0][first]), int(met[1][first]), KEEPS if held[0][first] else HANDS)


def _reads_detached(side: Side, calls: Ints) -> Bools:
    """Which calls read a parameter that gets gradients, but as something that needs none; none if
    all are read so, as in transforms of functions, which ask for gradients in another way.
    """
    if side.base is not None:
        return np.zeros(len(calls), dtype=np.bool_)
    tensors = side.tensors
    read = tensors.parameter & ~tensors.output & np.isin(tensors.named, learnt_names(side))
    rows = np.flatnonzero(read & np.isin(tensors.call, calls))
    needs = Cells(side).of_tensors("requires_grad", rows)
    told = any(each is True for each in needs)
    detached = [each is False and told for each in needs]
    found: Bools = np.isin(calls, tensors.call[rows[np.array(detached, dtype=np.bool_)]])
    return found


def _cut_off(pairing: Pairing, meetings: Meetings, place: tuple[int, int]) -> Path | None:
    """Where one side alone detaches what both compute with gradients and compute on with, in a rank
    and step: its call that does so, and the other's first that reads the same; None where there is
    none, or where either side detaches something that the other does not: one may detach before an
    activation, the other behind it.
    """
    sides, flows = (pairing.target, pairing.golden), pairing.flows
    read = [_read_on(pairing, number, place) for number in (0, 1)]
    alone = [_read_alone(pairing, meetings, number, place, read) for number in (0, 1)]
    if all(map(len, alone)):
        return None
    back = [with_gradients(side) for side in sides]
    for number, words in ((0, CUTS), (1, MISSES)):
        whole, state = read[1 - number][0], flows[1 - number].state
        for row in alone[number].tolist():
            met = int(meetings.partner[number][row])
            too = whole[state[whole] == state[met]]
            if meetings.unmet(number)[row] or met < 0 or not len(too):
                continue
            call = int(sides[number].tensors.call[row])
            readers = sides[1 - number].tensors.call[too].tolist()
            same = _making_the_same(pairing, meetings, number, call, readers)
            own = _detaching(sides[number], flows[number].state, row)
            kept = state[read[1 - number][1]]
            goes_on = any(
                back[1 - number][one]
                and not np.isin(state[outputs_of(sides[1 - number], one)], kept).any()
                for one in same
            )
            if not back[number][call] and (own == call or not goes_on):
                continue  # one may compute its gradients itself, or detach behind an activation
            word = family(sides[number].operator(call))
            alike = [one for one in readers if family(sides[1 - number].operator(one)) == word]
            reader = [*same, *alike, *readers][0]
            made = int(flows[number].producer[row]), int(flows[1 - number].producer[too[0]])
            if number == 0:
                return Path(own, reader, words, made)
            return Path(reader, own, words, made[::-1])
    return None


def _making_the_same(
    pairing: Pairing, meetings: Meetings, number: int, call: int, readers: list[int]
) -> list[int]:
    """Of some calls of the other side those that make what a side's call does."""
    side, other = (pairing.target, pairing.golden)[:: -1 if number else 1]
    made = [row for row in outputs_of(side, call) if not meetings.unmet(number)[row]]
    met = meetings.partner[number][made]
    state = pairing.flows[1 - number].state
    same = np.isin(state, state[met[met >= 0]]) & other.tensors.output
    return [one for one in readers if same[outputs_of(other, one)].any()]


def _feeding(side: Side, producer: Ints, place: tuple[int, int]) -> Bools:
    """Calls of a rank and step that make what needs gradients, and those without of which such
    calls are given something, by whatever others: not those of a number that is only told.
    """
    tensors, feeding = side.tensors, with_gradients(side)
    read = calls_at(side, place)[tensors.call] & ~tensors.output & (producer >= 0)
    rows = np.flatnonzero(read & side.calls.leaf[tensors.call])
    needs = np.array([each is True for each in Cells(side).of_tensors("requires_grad", rows)], bool)
    needing, others = rows[needs], rows[~needs]
    # of a call that reads nothing that needs gradients, what needs some is a leaf
    feeding[np.intersect1d(producer[needing], tensors.call[needing])] = True
    for row in others[np.argsort(-tensors.call[others], kind="stable")].tolist():
        if feeding[tensors.call[row]]:
            feeding[producer[row]] = True
    return feeding


def _read_alone(
    pairing: Pairing,
    meetings: Meetings,
    number: int,
    place: tuple[int, int],
    read: list[tuple[Ints, Ints]],
) -> Ints:
    """The rows in which a side reads as detached what the other does not read so, for what needs
    gradients.
    """
    rows, others = read[number][1], read[1 - number][1]
    state = pairing.flows[1 - number].state
    partner = meetings.partner[number][rows]
    met = ~meetings.unmet(number)[rows] & (partner >= 0)
    too = met & np.isin(state[np.maximum(partner, 0)], state[others])
    alone: Ints = rows[~too]
    if not len(alone):
        return alone
    side = (pairing.target, pairing.golden)[number]
    feeding = _feeding(side, pairing.flows[number].producer, place)
    return alone[feeding[side.tensors.call[alone]]]


def _read_on(pairing: Pairing, number: int, place: tuple[int, int]) -> tuple[Ints, Ints]:
    """The rows of a side in which forward calls read what needs gradients, and those in which they
    read the same as something that needs none.
    """
    side, state = (pairing.target, pairing.golden)[number], pairing.flows[number].state
    none = np.zeros(0, dtype=np.int64)
    if side.base is not None:
        return none, none
    tensors = side.tensors
    here = calls_at(side, place) & side.calls.leaf & side.in_phase("forward")
    read = ~tensors.output & ~tensors.parameter & (tensors.size >= LEAST)
    rows = np.flatnonzero(read & here[tensors.call])
    needs = Cells(side).of_tensors("requires_grad", rows)
    whole = rows[np.array([each is True for each in needs], dtype=np.bool_)]
    others = rows[np.array([each is False for each in needs], dtype=np.bool_)]
    return whole, others[np.isin(state[others], state[whole])]


def _detaching(side: Side, state: Words, row: int) -> int:
    """The last call before a reader that detaches what it reads; the reader where none shows."""
    tensors, reader = side.tensors, int(side.tensors.call[row])
    detaches = side.which(side.calls.op, lambda op: family(op) == "detach") & side.calls.leaf
    rows = np.flatnonzero(detaches[tensors.call] & ~tensors.output & (state == state[row]))
    before = tensors.call[rows][tensors.call[rows] < reader]
    return int(before[-1]) if len(before) else reader
