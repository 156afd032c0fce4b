# SPDX-License-Identifier: Apache-2.0
"""Calls in which a side does, or leaves out, elsewhere what the other's start does: what a finding
names beside its start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.region_calls import updated_alike
from opscope.compare.cause.start_pairs import one_family
from opscope.compare.cause.what_matters import FORWARD, PARAMETER
from opscope.compare.side.call_rows import handed_on, inputs_of, outputs_of, parameters_of, steps_of
from opscope.operators.catalogue import family
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing

SCALES = frozenset({"mul", "div"})
MOST_VIEWS = 8  # calls that compute nothing, one behind the other


def done_elsewhere(
    pairing: Pairing,
    meetings: Meetings,
    unmet: tuple[Bools, Bools],
    starts: tuple[int, int],
    stage: int,
) -> list[tuple[int, ...]]:
    """Calls of either side: what made the input of its start where the other side computes with
    that first. Where results part, what reads gradients first where the other side divides its loss
    by a constant, and what adds a parameter to a gradient where the other adds something of
    parameters to its loss. For a call of a graph's backward pass, that of the forward pass which it
    belongs to. Where parameters part, what does to others what the other side's start
    does (updated_alike).
    """
    found: list[tuple[int, ...]] = []
    for number in (0, 1):
        one = _Side(pairing, number, starts[number])
        other = _Side(pairing, 1 - number, starts[1 - number])
        if _leaves_out(pairing, meetings, unmet, one, other):
            found.append(one.maker(unmet[number]))
        elif one.goes_back_in_graph():
            found.append(one.gone_back_through())
        elif stage == PARAMETER:
            found.append(updated_alike(pairing, starts, number))
        elif stage == FORWARD and other.scales_loss():
            found.append(one.first_of_gradients())
        elif stage == FORWARD and other.adds_of_parameters(unmet[1 - number]):
            found.append(one.decays())
        else:
            found.append(())
    return found


def _leaves_out(
    pairing: Pairing, meetings: Meetings, unmet: tuple[Bools, Bools], one: _Side, other: _Side
) -> bool:
    """Whether two starts read the same, and what the other's makes goes into a call of the operator
    that one's start is of.
    """
    if one_family(pairing, *_in_order(one, other)):
        return False
    state = pairing.flows[1 - one.number].state
    read = inputs_of(one.side, one.start)
    partner = meetings.partner[one.number]
    met = [
        int(state[partner[row]])
        for row in read
        if not unmet[one.number][row] and partner[row] >= 0 and not one.side.tensors.parameter[row]
    ]
    shared = np.isin(state[inputs_of(other.side, other.start)], np.array(met, dtype=np.uint64))
    if not shared.any():
        return False
    kind = family(one.side.operator(one.start))
    return any(family(other.side.operator(call)) == kind for call in other.readers())


def _in_order(one: _Side, other: _Side) -> tuple[int, int]:
    return (one.start, other.start) if one.number == 0 else (other.start, one.start)


class _Side:
    """One side and its start."""

    def __init__(self, pairing: Pairing, number: int, start: int) -> None:
        self.side, self.flow = (pairing.target, pairing.golden)[number], pairing.flows[number]
        self.number, self.start = number, start

    def readers(self) -> list[int]:
        """The calls that read what the start makes, through those that compute nothing."""
        waiting, found = outputs_of(self.side, self.start), list[int]()
        for _ in range(MOST_VIEWS):
            calls = self._reading(np.array(waiting, dtype=np.int64))
            found += [call for call in calls if handed_on(self.side, call) == NONE]
            waiting = [
                row
                for call in calls
                if handed_on(self.side, call) != NONE
                for row in outputs_of(self.side, call)
            ]
            if not waiting:
                break
        return found

    def _reading(self, rows: Ints) -> list[int]:
        tensors = self.side.tensors
        read = np.flatnonzero(~tensors.output & np.isin(self.flow.source_row, rows))
        read = read[self.side.calls.leaf[tensors.call[read]]]
        calls: list[int] = np.unique(tensors.call[read]).tolist()
        return calls

    def maker(self, unmet: Bools) -> tuple[int, ...]:
        """The call that made what the start reads, behind those that compute nothing."""
        for row in inputs_of(self.side, self.start):
            if unmet[row] or self.side.tensors.parameter[row]:
                continue
            call = int(self.flow.producer[row])
            for _ in range(MOST_VIEWS):
                handed = handed_on(self.side, call) if call != NONE else NONE
                if handed == NONE:
                    break
                call = int(self.flow.producer[handed])
            return () if call == NONE else (call,)
        return ()

    def goes_back_in_graph(self) -> bool:
        """Whether the start is of the backward pass of a graph, of which no line is known."""
        side = self.side
        backward = side.in_phase("backward")[self.start]
        return bool(backward and side.enclosing(side.graphs())[self.start] >= 0)

    def gone_back_through(self) -> tuple[int, ...]:
        """The first call of the graph's forward pass that is of the start's operator, and reads
        something that the start does.
        """
        side, state = self.side, self.flow.state
        kind = family(side.operator(self.start))
        read = state[inputs_of(side, self.start)]
        forward = side.in_phase("forward") & side.calls.leaf
        forward &= side.which(side.calls.op, lambda op: family(op) == kind)
        rows = np.flatnonzero(~side.tensors.output & forward[side.tensors.call])
        rows = rows[np.isin(state[rows], read)]
        return tuple(np.unique(side.tensors.call[rows])[:1].tolist())

    def scales_loss(self) -> bool:
        """Whether the start multiplies one number by a constant, from which gradients begin."""
        side = self.side
        made = outputs_of(side, self.start)
        if family(side.operator(self.start)) not in SCALES or len(made) != 1:
            return False
        alone = len(inputs_of(side, self.start)) == 1 and side.tensors.size[made[0]] == 1
        backward = side.in_phase("backward")
        return bool(alone and any(backward[call] for call in self.readers()))

    def first_of_gradients(self) -> tuple[int, ...]:
        """The first call behind the start's backward pass that reads a gradient."""
        side, backward = self.side, self.side.in_phase("backward")
        rows = np.flatnonzero(~side.tensors.output & self._later()[side.tensors.call])
        made = self.flow.producer[rows]
        read = rows[(made >= 0) & backward[np.maximum(made, 0)]]
        return tuple(np.unique(side.tensors.call[read])[:1].tolist())

    def _later(self) -> Bools:
        """The calls behind the start in its step that are of no backward pass."""
        side, steps = self.side, steps_of(self.side)
        behind = (steps == steps[self.start]) & (np.arange(len(steps)) > self.start)
        later: Bools = behind & side.calls.leaf & ~side.in_phase("backward")
        return later

    def adds_of_parameters(self, unmet: Bools) -> bool:
        """Whether the start adds to one number that meets another that does not."""
        side = self.side
        read = inputs_of(side, self.start)
        if family(side.operator(self.start)) != "add" or len(read) != 2:
            return False
        single = all(side.tensors.size[row] == 1 for row in read)
        return bool(single and {bool(unmet[row]) for row in read} == {True, False})

    def decays(self) -> tuple[int, ...]:
        """The first call in the start's step that adds a parameter to a gradient."""
        side = self.side
        for call in np.flatnonzero(self._later()).tolist():
            read = parameters_of(side, call)
            if family(side.operator(call)) == "add" and read and len(inputs_of(side, call)) > 1:
                return (call,)
        return ()
