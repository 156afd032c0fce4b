# SPDX-License-Identifier: Apache-2.0
"""Who produced what in one run, and what a tensor state is known by, for all rows at once.

The producer of an input is the call whose output row carries its version and that does not also read it (a view's output
bears the version of what it views). A dump without versions is followed by content: the latest earlier output of the same
digest or, where it has none, of the same statistics. Where no row carries a version, it is the latest write to the storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.analysis.compare_tables import NONE, Calls, Side, Tensors, place_of
from opscope.analysis.hashes import distinct, mixed

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK = 1 << 14  # rows at a time: what is computed in between stays in the cache
MAX_NEIGHBOURS = 16  # rows of one call that are compared one with another; calls with more rows are sorted


class Flow(msgspec.Struct, frozen=True):
    """For each tensor row: the producing call and its output row (NONE where nobody recorded produced it), and a hash of its content.

    state is 0 where nothing is known of the values; whole says that it came from a digest, not from statistics.
    """

    producer: NDArray[np.int64]
    source_row: NDArray[np.int64]
    state: NDArray[np.uint64]
    whole: NDArray[np.bool_]


def follow(calls: Calls, tensors: Tensors) -> Flow:
    """Producers and states of all tensor rows of a run."""
    state, whole = _states(calls, tensors)
    producer_row = _by_version(calls, tensors)
    lost = ~tensors.output & (tensors.version < 0)
    if lost.any():
        producer_row = np.where(lost, _by_content(calls, tensors, state), producer_row)
    lost = ~tensors.output & (producer_row < 0) & (tensors.storage >= 0) & (tensors.version >= 0)  # other tools' are addresses, used again
    if lost.any():
        producer_row = np.where(lost, _by_storage(calls, tensors, lost), producer_row)
    producer = np.where(producer_row >= 0, tensors.call[np.maximum(producer_row, 0)], NONE)
    return Flow(producer, producer_row, state, whole)


def without_enclosing(side: Side) -> Side:
    """The side with calls that only enclose others no longer counted as leaves, for dumps that do not say what lies inside what.

    A module and the last call inside it write the same content, which neither of them reads; the module was entered first.
    Constant content says nothing, nor do two calls of one operator.
    """
    calls, tensors = side.calls, side.tensors
    if side.run.info.format == "opscope" or not len(calls) or (calls.parent >= 0).any():
        return side
    state, whole = _states(calls, tensors)
    telling = whole & (tensors.size > 1) & (tensors.min != tensors.max)
    content = mixed(state, calls.process[tensors.call].astype(np.uint64), calls.step[tensors.call].astype(np.uint64))
    here = mixed(content, tensors.call.astype(np.uint64))
    written = np.flatnonzero(telling & tensors.output)
    written = written[~np.isin(here[written], here[telling & ~tensors.output])]
    names, codes = np.unique(content[written], return_inverse=True)
    last = np.zeros(len(names), dtype=np.int64)
    np.maximum.at(last, codes, tensors.call[written])
    outer, inner = tensors.call[written], last[codes]
    encloses = (outer < inner) & (calls.op[outer] != calls.op[inner])
    leaf = calls.leaf.copy()
    leaf[outer[encloses]] = False
    return msgspec.structs.replace(side, calls=msgspec.structs.replace(calls, leaf=leaf))


def _identity(calls: Calls, tensors: Tensors) -> NDArray[np.int64]:
    """Process and version as one number, NONE without a version."""
    if not len(tensors):
        return np.zeros(0, dtype=np.int64)
    alone = bool((calls.process == calls.process[0]).all())
    process = calls.process[:1] if alone else calls.process[tensors.call]
    return np.where(tensors.version >= 0, (process << 44) | tensors.version, NONE)


def _states(calls: Calls, tensors: Tensors) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    state = np.where(tensors.digested, tensors.digest, np.uint64(0))
    whole = tensors.digested.copy()
    identity = _identity(calls, tensors)
    known = np.flatnonzero(tensors.digested & (identity >= 0))
    views = np.flatnonzero(~tensors.digested & (identity >= 0))
    if len(known) and len(views):
        order = np.argsort(identity[known], kind="stable")
        base = place_of(identity[views], identity[known], order)
        found = views[base >= 0]
        bases = known[base[base >= 0]]
        state[found] = mixed(tensors.digest[bases], tensors.shape[found], tensors.stride[found])
        whole[found] = True
    rest = np.flatnonzero(~whole & (tensors.nan >= 0))
    for start in range(0, len(rest), _BLOCK):
        rows = rest[start : start + _BLOCK]
        numbers = [column[rows] + 0.0 for column in (tensors.min, tensors.max, tensors.mean, tensors.l2norm)]
        bits = [np.where(np.isnan(column), 0.0, column).view(np.uint64) for column in numbers]
        counts = [column[rows].view(np.uint64) for column in (tensors.size, tensors.nan, tensors.zero)]
        state[rows] = mixed(*bits, *counts, tensors.shape[rows])
    return state, whole


def _by_version(calls: Calls, tensors: Tensors) -> NDArray[np.int64]:
    """Output row that first carried the version of each input."""
    identity = _identity(calls, tensors)
    found = np.full(len(tensors), NONE, dtype=np.int64)
    inputs = np.flatnonzero(~tensors.output & (identity >= 0))
    written = tensors.output & (identity >= 0) & ~aliases(calls, tensors)
    leaf = calls.leaf[tensors.call]
    for outputs in (np.flatnonzero(written & leaf), np.flatnonzero(written & ~leaf)):  # a module only where nothing inside it is known to
        lost = inputs[found[inputs] < 0]
        if not len(lost) or not len(outputs):
            continue
        place = place_of(identity[lost], identity[outputs], np.argsort(identity[outputs], kind="stable"))
        row = np.where(place >= 0, outputs[np.maximum(place, 0)], NONE)
        later = (row >= 0) & (tensors.call[np.maximum(row, 0)] >= tensors.call[lost]) & leaf[lost]
        found[lost] = np.where(later, NONE, row)
    return found


def aliases(calls: Calls, tensors: Tensors) -> NDArray[np.bool_]:
    """Output rows whose call also reads the same version: views of an input. Compares each row with its neighbours of the call."""
    found = np.zeros(len(tensors), dtype=np.bool_)
    call, output, identity = tensors.call, tensors.output, _identity(calls, tensors)
    for shift in range(1, MAX_NEIGHBOURS):
        if not (call[shift:] == call[:-shift]).any():
            break
        one = np.flatnonzero(identity[shift:] == identity[:-shift])
        other = one + shift
        same = (identity[one] >= 0) & (call[one] == call[other]) & (output[one] != output[other])
        found[np.where(output[one], one, other)[same]] = True
    else:
        both = mixed(call.astype(np.uint64), identity.astype(np.uint64))
        found |= output & np.isin(both, both[~output])
    return found


def _by_content(calls: Calls, tensors: Tensors, state: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Latest earlier output with the same content, for dumps that have no versions."""
    process = calls.process[tensors.call].astype(np.uint64)
    usable = (state != 0) & (tensors.size != 1) & (tensors.version < 0)
    written = tensors.output & usable & calls.leaf[tensors.call]
    return _latest(mixed(state, process, tensors.dtype), tensors.call, written, ~tensors.output & usable)


def _by_storage(calls: Calls, tensors: Tensors, lost: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Latest earlier output on the same storage that is no view of what its call read: a write through another view."""
    process = calls.process[tensors.call].astype(np.uint64)
    place = mixed(process, tensors.storage.astype(np.uint64))
    written = tensors.output & (tensors.storage >= 0) & calls.leaf[tensors.call] & ~aliases(calls, tensors)
    return _latest(place, tensors.call, written, lost)


def _latest(content: NDArray[np.uint64], call: NDArray[np.int64], written: NDArray[np.bool_], read: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each read row the last written row of an earlier call with the same content."""
    found = np.full(len(content), NONE, dtype=np.int64)
    outputs, inputs = np.flatnonzero(written), np.flatnonzero(read)
    if not len(inputs) or not len(outputs):
        return found
    outputs = outputs[np.isin(content[outputs], distinct(content[inputs]))]
    if not len(outputs):
        return found
    names, codes = np.unique(content[outputs], return_inverse=True)
    near = np.minimum(np.searchsorted(names, content[inputs]), len(names) - 1)
    known = names[near] == content[inputs]
    span = int(call.max()) + 2
    placed = codes.astype(np.int64) * span + call[outputs]
    order = np.argsort(placed, kind="stable")
    before = np.searchsorted(placed[order], near * span + call[inputs]) - 1
    latest = np.maximum(before, 0)
    fits = known & (before >= 0) & (placed[order][latest] // span == near)
    found[inputs] = np.where(fits, outputs[order][latest], NONE)
    return found
