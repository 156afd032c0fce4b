# SPDX-License-Identifier: Apache-2.0
"""Names for what a program trains where no module names it: functions of weights in a dictionary,
as ports out of another framework are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.side.call_rows import inputs_of, outputs_of
from opscope.compare.side.hashes import mixed
from opscope.compare.side.lowering import GRAPH, spelling
from opscope.judge.operators import is_per_element
from opscope.operators.catalogue import traits_of

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
    backward = side.which(calls.phase, lambda phase: phase == "backward")
    if not backward.any():
        return side
    if (tensors.parameter & (tensors.named != 0)).any():
        return _with_read_gradients(side, flow) if spelling(side) == GRAPH else side
    updates = _updates(side, backward)
    own = _as_large(side, updates)
    names = np.where(own, mixed(tensors.storage.astype(np.uint64)), tensors.named)
    for row in updates.tolist():
        for gradient in _gradients(side, flow, row, backward):
            names[gradient] = names[row]
    return msgspec.structs.replace(
        side,
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


def _gradients(side: Side, flow: Flow, row: int, backward: Bools) -> list[int]:
    """The rows of a backward pass from which an update was computed, of its size."""
    tensors = side.tensors
    waiting, seen, gradients = [row], set[int](), list[int]()
    while waiting and len(seen) < MAX_ABOVE:
        made = waiting.pop()
        if int(tensors.call[made]) in seen:
            continue
        seen.add(int(tensors.call[made]))
        for read in _read_for(side, made):
            producer = int(flow.producer[read])
            own = tensors.storage[read] == tensors.storage[row]
            if own or flow.source_row[read] < 0 or tensors.size[read] != tensors.size[row]:
                continue
            (gradients if backward[producer] else waiting).append(int(flow.source_row[read]))
    return gradients


def _read_for(side: Side, made: int) -> list[int]:
    """The inputs that a result is computed from: of a call over lists the result's own elements."""
    call = int(side.tensors.call[made])
    reads = inputs_of(side, call)
    if not is_per_element(side.operator(call)):
        return reads
    results = outputs_of(side, call)
    return reads[results.index(made) :: len(results)]
