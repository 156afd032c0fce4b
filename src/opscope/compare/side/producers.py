# SPDX-License-Identifier: Apache-2.0
"""Who produced what in one run, and what a tensor state is known by, for all rows at once.

The producer of an input is the call whose output row carries its version and that does not also
read it (a view's output bears the version of what it views). A dump without versions is followed by
content: the latest earlier output of the same digest or, where it has none, of the same statistics.
Where no row carries a version, it is the latest write to the storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.side.columns import Calls, Side, Tensors
from opscope.run.hashes import distinct, mixed
from opscope.run.keys import NONE, place_of

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Ints, Words

_BLOCK = 1 << 16  # rows at a time: what is computed in between stays in the cache
_GRAIN = 256.0  # single numbers that are no multiple of its inverse are nobody's constants
# rows of one call that are compared one with another; calls with more rows are sorted
MAX_NEIGHBOURS = 16


class Flow(msgspec.Struct, frozen=True):
    """For each tensor row: the producing call and its output row (NONE where nobody recorded
    produced it), and a hash of its content.

    state is 0 where nothing is known of the values; whole says that it came from a digest, not from
    statistics. Rows and calls are of side.columns.index_type.
    """

    producer: Array
    source_row: Array
    state: Words
    whole: Bools


def follow(calls: Calls, tensors: Tensors) -> Flow:
    """Producers and states of all tensor rows of a run."""
    identity = _identity(calls, tensors)
    state, whole = _states(tensors, identity)
    alias = _aliases(tensors, identity)
    producer_row = _by_version(calls, tensors, identity, alias)
    lost = np.flatnonzero(~tensors.output & (tensors.version < 0))
    if len(lost):
        producer_row[lost] = _by_content(calls, tensors, state, lost)
    # Storages of other tools are addresses, used again.
    lost = np.flatnonzero(
        ~tensors.output & (producer_row < 0) & (tensors.storage >= 0) & (tensors.version >= 0)
    )
    if len(lost):
        producer_row[lost] = _by_storage(calls, tensors, alias, lost)
    return Flow(makers_of(tensors, producer_row), producer_row, state, whole)


def makers_of(tensors: Tensors, source: Array) -> Array:
    """The call that made each of some source rows, NONE where there is no row."""
    return np.where(source >= 0, tensors.call[np.maximum(source, 0)], tensors.call.dtype.type(NONE))


def without_enclosing(side: Side) -> Side:
    """The side with calls that only enclose others no longer counted as leaves, for dumps that do
    not say what lies inside what.

    A module and the last call inside it write the same content, which neither of them reads; the
    module was entered first. Constant content says nothing, nor do two calls of one operator.
    """
    calls, tensors = side.calls, side.tensors
    if side.run.info.coverage.versions or not len(calls) or (calls.parent >= 0).any():
        return side
    state, whole = _states(tensors, _identity(calls, tensors))
    telling = whole & (tensors.size > 1) & (tensors.min != tensors.max)
    content = mixed(
        state,
        calls.process[tensors.call].astype(np.uint64),
        calls.step[tensors.call].astype(np.uint64),
    )
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


def _identity(calls: Calls, tensors: Tensors) -> Ints:
    """Process and version as one number, NONE without a version."""
    if not len(tensors):
        return np.zeros(0, dtype=np.int64)
    known = tensors.version >= 0
    if (calls.process == calls.process[0]).all():
        process = int(calls.process[0]) << 44
        return (
            tensors.version
            if not process and known.all()
            else np.where(known, process | tensors.version, NONE)
        )
    return np.where(known, (calls.process[tensors.call] << 44) | tensors.version, NONE)


def _states(tensors: Tensors, identity: Ints) -> tuple[Words, Bools]:
    state, whole = tensors.digest, tensors.digested  # no digest is 0
    if whole.all():
        return state, whole
    state, whole = state.copy(), whole.copy()
    known = np.flatnonzero(tensors.digested & (identity >= 0))
    views = np.flatnonzero(~tensors.digested & (identity >= 0))
    if len(known) and len(views):
        base = place_of(identity[views], identity[known])
        viewed = views[base >= 0]
        bases = known[base[base >= 0]]
        state[viewed] = mixed(tensors.digest[bases], tensors.shape[viewed], tensors.stride[viewed])
        whole[viewed] = True
    rest = np.flatnonzero(~whole & (tensors.nan >= 0))
    every = len(rest) == len(state)
    for start in range(0, len(rest), _BLOCK):
        rows = slice(start, start + _BLOCK) if every else rest[start : start + _BLOCK]
        state[rows] = _statistics(tensors, rows)
    return state, whole


def _statistics(tensors: Tensors, rows: slice | Ints) -> Words:
    """A hash of the statistics and shapes of rows; 0 where none is a number, as other tools write
    them of tensors with NaN.
    """
    numbers = [
        column[rows] + 0.0 for column in (tensors.min, tensors.max, tensors.mean, tensors.l2norm)
    ]
    unknown = np.ones(len(numbers[0]), dtype=np.bool_)
    for column in numbers:
        missing = np.isnan(column)
        unknown &= missing
        np.copyto(column, 0.0, where=missing)
    counts = [column[rows].view(np.uint64) for column in (tensors.size, tensors.nan, tensors.zero)]
    hashes = mixed(*(column.view(np.uint64) for column in numbers), *counts, tensors.shape[rows])
    hashes[unknown & (tensors.nan[rows] > 0)] = 0
    return hashes


def _by_version(calls: Calls, tensors: Tensors, identity: Ints, alias: Bools) -> Array:
    """Output row that first carried the version of each input."""
    producer = np.full(len(tensors), NONE, dtype=tensors.row.dtype)
    lost = np.flatnonzero(~tensors.output & (identity >= 0))
    written = np.flatnonzero(tensors.output & (identity >= 0) & ~alias)
    leaf = calls.leaf[tensors.call[written]]
    # a module only where nothing inside it is known to
    for outputs in (written[leaf], written[~leaf]):
        if not len(lost) or not len(outputs):
            continue
        at = place_of(identity[lost], identity[outputs])
        known = at >= 0
        read, row = lost[known], outputs[at[known]]
        later = (tensors.call[row] >= tensors.call[read]) & calls.leaf[tensors.call[read]]
        producer[read] = np.where(later, NONE, row)
        lost = lost[producer[lost] < 0]
    return producer


def aliases(calls: Calls, tensors: Tensors) -> Bools:
    """Output rows whose call also reads the same version: views of an input. Compares each row with
    its neighbours of the call.
    """
    return _aliases(tensors, _identity(calls, tensors))


def _aliases(tensors: Tensors, identity: Ints) -> Bools:
    aliasing = np.zeros(len(tensors), dtype=np.bool_)
    call, output = tensors.call, tensors.output
    most = (
        int(np.diff(np.flatnonzero(np.r_[True, call[1:] != call[:-1], True])).max())
        if len(call)
        else 0
    )  # rows of a call
    for shift in range(1, min(most, MAX_NEIGHBOURS)):
        earlier = np.flatnonzero(
            (identity[shift:] == identity[:-shift]) & (output[shift:] != output[:-shift])
        )
        later = earlier + shift
        same = (identity[earlier] >= 0) & (call[earlier] == call[later])
        aliasing[np.where(output[earlier], earlier, later)[same]] = True
    if most > MAX_NEIGHBOURS:
        both = mixed(call.astype(np.uint64), identity.astype(np.uint64))
        aliasing |= output & (identity >= 0) & np.isin(both, both[~output])
    return aliasing


def numbers_telling(tensors: Tensors) -> Bools:
    """Rows of which the mean is no number that may come from anywhere, like 0.5."""
    fine = tensors.mean * _GRAIN
    telling: Bools = np.isfinite(fine) & (fine != np.round(fine))
    return telling


def _by_content(calls: Calls, tensors: Tensors, state: Words, lost: Ints) -> Ints:
    """Latest earlier output with the content of each lost row, for dumps that have no versions."""
    telling = (tensors.size != 1) | numbers_telling(tensors)
    usable = (state != 0) & telling & (tensors.version < 0)
    written = np.flatnonzero(tensors.output & usable & calls.leaf[tensors.call])
    content = mixed(state, calls.process[tensors.call].astype(np.uint64), tensors.dtype)
    written = written[np.isin(content[written], distinct(content[lost]))]
    latest = _latest(content[written], content[lost], tensors.call, written, lost)
    return np.where(usable[lost], latest, NONE)


def _by_storage(calls: Calls, tensors: Tensors, alias: Bools, lost: Ints) -> Ints:
    """Latest earlier output on the storage of each lost row that is no view of what its call read:
    a write through another view.
    """
    written = np.flatnonzero(tensors.output & (tensors.storage >= 0) & ~alias)
    written = written[calls.leaf[tensors.call[written]]]
    latest = np.full(len(lost), NONE, dtype=np.int64)
    shared = np.flatnonzero(place_of(tensors.storage[lost], tensors.storage[written]) >= 0)
    if len(shared):
        process = calls.process[tensors.call]
        rows = lost[shared]
        storages = [
            mixed(process[some].astype(np.uint64), tensors.storage[some].astype(np.uint64))
            for some in (written, rows)
        ]
        latest[shared] = _latest(storages[0], storages[1], tensors.call, written, rows)
    return latest


def _latest(
    content: Words,
    wanted: Words,
    call: Ints,
    written: Ints,
    read: Ints,
) -> Ints:
    """For each read row the last written row of an earlier call with the content that is wanted;
    content is that of written rows.
    """
    if not len(written) or not len(read):
        return np.full(len(read), NONE, dtype=np.int64)
    names, codes = np.unique(content, return_inverse=True)
    near = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
    span = int(call.max()) + 2
    placed = codes.astype(np.int64) * span + call[written]
    order = np.argsort(placed, kind="stable")
    before = np.searchsorted(placed[order], near * span + call[read]) - 1
    latest = np.maximum(before, 0)
    fits = (names[near] == wanted) & (before >= 0) & (placed[order][latest] // span == near)
    return np.where(fits, written[order][latest], NONE)
