# SPDX-License-Identifier: Apache-2.0
"""Names for what a program trains where no module names it: functions of weights in a dictionary,
as ports out of another framework are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.side.call_rows import inputs_of, outputs_of, updating
from opscope.compare.side.lowering import GRAPH, spelling
from opscope.compare.side.updates import updates_of, updates_of_parameters
from opscope.run.hashes import mixed

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow
    from opscope.compare.side.updates import Update, Updates


def with_trained_names(side: Side, flow: Flow, *, anew: bool = True) -> Side:
    """The side as it is where parameters and gradients have names, of MindSpore with those of the
    gradients that its optimizers read, of a program that asks for gradients itself with names for
    these. Else with a name for each tensor that is read before the first backward pass and
    written to in place after it, or computed anew (if asked for), and for its gradients.
    """
    tensors, backward = side.tensors, side.in_phase("backward")
    if not backward.any():
        return side
    if not names_parameters(side):
        updates = updates_of(side, flow, backward, anew=anew)
        own, first = _trained(side, updates)
        names = np.where(own, mixed(first.astype(np.uint64)), tensors.named)
        own = tensors.parameter | own
        named = msgspec.structs.replace(tensors, named=names, parameter=own)
        return _with_gradients(msgspec.structs.replace(side, tensors=named), updates.each)
    if spelling(side) == GRAPH:
        return _with_read_gradients(side, flow)
    if (backward[tensors.call] & ~tensors.parameter & (tensors.named != 0)).any():
        return side
    return _with_gradients(side, updates_of_parameters(side, flow, backward))


def _with_gradients(side: Side, updates: list[Update]) -> Side:
    """The side with the names of what is updated for the gradients that it is updated from."""
    tensors, calls = side.tensors, side.calls
    backward = int(np.argmax(side.in_phase("backward")))
    names, phase = tensors.named.copy(), calls.phase.copy()
    for update in updates:
        gradients = update.gradients if update.total < 0 else update.total
        names[gradients] = names[update.row]
        if update.total >= 0:  # as torch's own sum of them is
            phase[tensors.call[update.total]] = calls.phase[backward]
    return msgspec.structs.replace(
        side,
        calls=msgspec.structs.replace(calls, phase=phase),
        tensors=msgspec.structs.replace(tensors, named=names),
    )


def names_parameters(side: Side) -> bool:
    """Whether any parameter has a name."""
    return bool((side.tensors.parameter & (side.tensors.named != 0)).any())


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


def _trained(side: Side, updates: Updates) -> tuple[Bools, Ints]:
    """The rows of the storages of what is trained, of as many elements as its updates: no views of
    a part; and the storage in which what each row holds lay first.
    """
    tensors = side.tensors
    storages, at = np.unique(tensors.storage, return_inverse=True)
    first, begins = storages.copy(), np.zeros_like(storages)
    sizes = set[tuple[int, int]]()
    for update in updates.each:
        for storage in (int(tensors.storage[update.row]), update.replaces):
            place = int(np.searchsorted(storages, storage))
            first[place], begins[place] = update.first, updates.begins.get(storage, 0)
            sizes.add((storage, int(tensors.size[update.row])))
    known = np.array(sorted(sizes), dtype=np.uint64).reshape(-1, 2)
    as_large = np.isin(
        mixed(tensors.storage.astype(np.uint64), tensors.size.astype(np.uint64)), mixed(*known.T)
    )
    return as_large & (np.arange(len(tensors)) >= begins[at]), first[at]
