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

from opscope.analysis.compare_tables import NONE, Calls, Tensors, place_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MULTIPLIERS = tuple(np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class Flow(msgspec.Struct, frozen=True):
    """For each tensor row: the producing call and its output row (NONE where nobody recorded produced it), and a hash of its content.

    state is 0 where nothing is known of the values; whole says that it came from a digest, not from statistics.
    """

    producer: NDArray[np.int64]
    source_row: NDArray[np.int64]
    state: NDArray[np.uint64]
    whole: NDArray[np.bool_]


def mixed(*columns: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One hash for each row of several columns; the order of columns matters (the finaliser of SplitMix64)."""
    total = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        total = (total ^ column) + _MULTIPLIERS[0]
        total = (total ^ (total >> np.uint64(30))) * _MULTIPLIERS[1]
        total = (total ^ (total >> np.uint64(27))) * _MULTIPLIERS[2]
        total ^= total >> np.uint64(31)
    return total


def follow(calls: Calls, tensors: Tensors) -> Flow:
    """Producers and states of all tensor rows of a run."""
    state, whole = _states(calls, tensors)
    producer_row = _by_version(calls, tensors)
    lost = ~tensors.output & (tensors.version < 0) & (tensors.storage < 0)
    if lost.any():
        producer_row = np.where(lost, _by_content(calls, tensors, state), producer_row)
    lost = ~tensors.output & (producer_row < 0) & (tensors.storage >= 0)
    if lost.any():
        producer_row = np.where(lost, _by_storage(calls, tensors, lost), producer_row)
    producer = np.where(producer_row >= 0, tensors.call[np.maximum(producer_row, 0)], NONE)
    return Flow(producer, producer_row, state, whole)


def _identity(calls: Calls, tensors: Tensors) -> NDArray[np.int64]:
    """Process and version as one number, NONE without a version."""
    process = calls.process[tensors.call] if len(tensors) else np.zeros(0, dtype=np.int64)
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
    if len(rest):
        numbers = [np.nan_to_num(column[rest] + 0.0).view(np.uint64) for column in (tensors.min, tensors.max, tensors.mean, tensors.l2norm)]
        counts = [column[rest].astype(np.uint64) for column in (tensors.size, tensors.nan, tensors.zero)]
        state[rest] = mixed(*numbers, *counts, tensors.shape[rest])
    return state, whole


def _by_version(calls: Calls, tensors: Tensors) -> NDArray[np.int64]:
    """Output row that first carried the version of each input."""
    identity = _identity(calls, tensors)
    found = np.full(len(tensors), NONE, dtype=np.int64)
    inputs = np.flatnonzero(~tensors.output & (identity >= 0))
    outputs = np.flatnonzero(tensors.output & (identity >= 0))
    if not len(inputs) or not len(outputs):
        return found
    read = mixed(tensors.call[inputs].astype(np.uint64), identity[inputs].astype(np.uint64))
    written = mixed(tensors.call[outputs].astype(np.uint64), identity[outputs].astype(np.uint64))
    leaf = calls.leaf[tensors.call[outputs]]
    outputs = outputs[~np.isin(written, read) & leaf]
    if not len(outputs):
        return found
    order = np.argsort(identity[outputs], kind="stable")
    place = place_of(identity[inputs], identity[outputs], order)
    row = np.where(place >= 0, outputs[np.maximum(place, 0)], NONE)
    later = (row >= 0) & (tensors.call[np.maximum(row, 0)] >= tensors.call[inputs]) & calls.leaf[tensors.call[inputs]]
    found[inputs] = np.where(later, NONE, row)
    return found


def _by_content(calls: Calls, tensors: Tensors, state: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Latest earlier output with the same content, for dumps that have no versions."""
    process = calls.process[tensors.call].astype(np.uint64)
    usable = (state != 0) & (tensors.size != 1) & (tensors.version < 0) & (tensors.storage < 0)
    written = tensors.output & usable & calls.leaf[tensors.call]
    return _latest(mixed(state, process, tensors.dtype), tensors.call, written, ~tensors.output & usable)


def _by_storage(calls: Calls, tensors: Tensors, lost: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Latest earlier output on the same storage that is no view of what its call read: a write through another view."""
    process = calls.process[tensors.call].astype(np.uint64)
    place = mixed(process, tensors.storage.astype(np.uint64))
    both = mixed(tensors.call.astype(np.uint64), _identity(calls, tensors).astype(np.uint64))
    viewed = np.isin(both, both[~tensors.output])
    written = tensors.output & (tensors.storage >= 0) & calls.leaf[tensors.call] & ~viewed
    return _latest(place, tensors.call, written, lost)


def _latest(content: NDArray[np.uint64], call: NDArray[np.int64], written: NDArray[np.bool_], read: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each read row the last written row of an earlier call with the same content."""
    found = np.full(len(content), NONE, dtype=np.int64)
    outputs, inputs = np.flatnonzero(written), np.flatnonzero(read)
    if not len(inputs) or not len(outputs):
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
