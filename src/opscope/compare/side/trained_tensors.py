# SPDX-License-Identifier: Apache-2.0
"""Names for what a program trains where no module names it: functions of weights in a dictionary,
as ports out of another framework are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.side.call_rows import inputs_of, outputs_of
from opscope.compare.side.contents import bears_identities
from opscope.compare.side.lowering import GRAPH, spelling
from opscope.judge.operators import is_per_element
from opscope.operators.catalogue import traits_of
from opscope.run.hashes import distinct, mixed
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

MAX_ABOVE = 64  # calls between a gradient and what is computed from it
LEAST = 2  # elements: of a single number the gradient cannot be told from other numbers


def with_trained_names(side: Side, flow: Flow) -> Side:
    """The side as it is where parameters have names, of MindSpore with those of the gradients that
    its optimizers read. Else with a name for each tensor that is read before the first backward
    pass and written to in place after it, and for its gradients.
    """
    tensors, calls = side.tensors, side.calls
    backward = side.in_phase("backward")
    if not backward.any():
        return side
    if (tensors.parameter & (tensors.named != 0)).any():
        return _with_read_gradients(side, flow) if spelling(side) == GRAPH else side
    updates = _updates(side, backward)
    own = _as_large(side, updates)
    names = np.where(own, mixed(tensors.storage.astype(np.uint64)), tensors.named)
    phase, known = calls.phase.copy(), _Gradients(side, flow, updates, backward)
    for row in updates.tolist():
        gradients, total = known.of(row)
        names[gradients if total < 0 else total] = names[row]
        if total >= 0:  # as torch's own sum of them is
            phase[tensors.call[total]] = calls.phase[int(np.argmax(backward))]
    return msgspec.structs.replace(
        side,
        calls=msgspec.structs.replace(calls, phase=phase),
        tensors=msgspec.structs.replace(tensors, named=names, parameter=tensors.parameter | own),
    )


def _with_read_gradients(side: Side, flow: Flow) -> Side:
    """The side with names for gradients as calls of optimizers read them, one parameter each: what
    is no parameter, as large as the one that is written first.
    """
    tensors = side.tensors
    names = tensors.named.copy()
    for call in np.flatnonzero(updating(side)).tolist():
        written = [row for row in outputs_of(side, call) if tensors.parameter[row]]
        for row in inputs_of(side, call) if written else ():
            made = int(flow.source_row[row])
            alike = tensors.size[row] == tensors.size[written[0]] and not tensors.parameter[row]
            if alike and (made < 0 or not tensors.parameter[made]):
                names[[row, *([made] if made >= 0 else [])]] = tensors.named[written[0]]
    return msgspec.structs.replace(side, tensors=msgspec.structs.replace(tensors, named=names))


def _updates(side: Side, backward: Bools) -> Ints:
    """Rows written in place after the first backward pass, of what was read before it and not
    written to in between, as a mean is that a norm keeps.
    """
    tensors = side.tensors
    begin = int(np.argmax(backward))
    computed = computing(side)[tensors.call] & (tensors.storage >= 0) & (tensors.size >= LEAST)
    early = computed & (tensors.call < begin)
    reads = np.flatnonzero(early & ~tensors.output)
    first: dict[int, int] = {}
    for row in reads.tolist():
        first.setdefault(int(tensors.storage[row]), row)
    rewritten = {
        int(tensors.storage[row])
        for row in np.flatnonzero(early & tensors.output).tolist()
        if row > first.get(int(tensors.storage[row]), len(tensors))
    }
    pairs = mixed(tensors.call.astype(np.uint64), tensors.storage.astype(np.uint64))
    in_place = np.isin(pairs, pairs[~tensors.output])
    later = computed & tensors.output & in_place & ~backward[tensors.call] & (tensors.call > begin)
    return np.flatnonzero(later & np.isin(tensors.storage, sorted(first.keys() - rewritten)))


def computing(side: Side) -> Bools:
    """Leaf calls that do more than view, convert or allocate."""
    return side.calls.leaf & side.which(side.calls.op, lambda op: not traits_of(op).idle)


def updating(side: Side) -> Bools:
    """Leaf calls of operators that are a whole update of parameters."""
    return side.calls.leaf & side.which(
        side.calls.op, lambda op: traits_of(op).tolerance == "optimizer"
    )


def _as_large(side: Side, updates: Ints) -> Bools:
    """Rows of the storages of some updates, of as many elements as these have: no views of a
    part.
    """
    tensors = side.tensors
    storages, sizes = tensors.storage.astype(np.uint64), tensors.size.astype(np.uint64)
    as_large: Bools = np.isin(mixed(storages, sizes), mixed(storages[updates], sizes[updates]))
    return as_large


def _unseen_gradients(side: Side, flow: Flow, backward: Bools) -> Bools:
    """Rows that may be gradients which no call made, as in dumps: numbers that no forward call
    reads.
    """
    tensors, forward = side.tensors, side.in_phase("forward")
    if bears_identities(side):
        return np.zeros(len(tensors), dtype=np.bool_)
    unseen: Bools = ~tensors.output & (flow.source_row < 0) & (tensors.min < tensors.max)
    given = distinct(flow.state[~tensors.output & forward[tensors.call]])
    return unseen & ~np.isin(flow.state, given) & (tensors.call > int(np.argmax(backward)))


class _Gradients:
    """The rows of a backward pass from which updates were computed."""

    def __init__(self, side: Side, flow: Flow, updates: Ints, backward: Bools) -> None:
        self._side, self._flow, self._backward = side, flow, backward
        self._trained = set(side.tensors.storage[updates].tolist())
        self._unseen = _unseen_gradients(side, flow, backward)
        self._updates = np.unique(side.tensors.call[updates])
        self._passes = np.flatnonzero(backward)

    def _begin(self, update: int) -> int:
        """The last update before the backward passes of which a call computes one; what is older
        comes of other steps.
        """
        last = self._passes[np.searchsorted(self._passes, update) - 1]
        at = int(np.searchsorted(self._updates, last))
        return int(self._updates[at - 1]) if at else NONE

    def of(self, row: int) -> tuple[list[int], int]:
        """The gradients of an update, of its size, and the row that is their sum, where they are of
        several backward passes (NONE elsewhere); of a dump also what no call made. What is computed
        of another that is trained, as an average of weights, has none.
        """
        tensors, flow = self._side.tensors, self._flow
        begin = self._begin(int(tensors.call[row]))
        waiting, above, gradients = [row], dict[int, list[int]](), list[int]()
        known: dict[int, int] = {}  # the first row of each content that no call made
        while waiting and len(above) < MAX_ABOVE:
            made = waiting.pop()
            if made in above:
                continue
            above[made] = []
            for read in _read_for(self._side, made):
                source = int(flow.source_row[read])
                if (
                    int(tensors.storage[read]) in self._trained
                    or tensors.size[read] != tensors.size[row]
                    or (source < 0 and not self._unseen[read])
                    or (source >= 0 and tensors.call[source] <= begin)
                ):
                    continue
                from_outside = source < 0 or self._backward[tensors.call[source]]
                if source < 0:
                    source = known.setdefault(int(flow.state[read]), read)
                above[made].append(source)
                (gradients if from_outside else waiting).append(source)
        return gradients, _sum_of(set(gradients), above)


def _sum_of(gradients: set[int], above: dict[int, list[int]]) -> int:
    """The first row for which all of several gradients are read; NONE of a single one."""
    if len(gradients) < 2:
        return NONE
    reached: dict[int, set[int]] = {row: {row} for row in gradients}
    for row in sorted(above):
        reached[row] = set[int]().union(*(reached.get(read, set()) for read in above[row]))
        if reached[row] == gradients:
            return row
    return NONE


def _read_for(side: Side, made: int) -> list[int]:
    """The inputs that a result is computed from: of a call over lists the result's own elements."""
    call = int(side.tensors.call[made])
    reads = inputs_of(side, call)
    if not is_per_element(side.operator(call)):
        return reads
    results = outputs_of(side, call)
    return reads[results.index(made) :: len(results)]
