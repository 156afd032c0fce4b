# SPDX-License-Identifier: Apache-2.0
"""Calls as numbers: process and index packed into one int64."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Ints

_SHIFT = 40  # an index stays below 2^40 calls in a process
_INDEX = (1 << _SHIFT) - 1
NONE = -1  # no such row, no such call
# numbers from the least to the largest of a table, for each of its rows, up to which a place for
# each is kept
_DENSE = 8


def key(process: int, index: int) -> int:
    """The number of one call."""
    return (process << _SHIFT) | index


def keys_at(places: Iterable[tuple[int, int]]) -> Ints:
    """The numbers of calls by process and index, sorted, each once."""
    return np.unique(np.array([key(process, index) for process, index in places], dtype=np.int64))


def keys_of(process: Array, index: Array) -> Ints:
    """One number for each row of two columns."""
    return (np.asarray(process).astype(np.int64) << _SHIFT) | np.asarray(index).astype(np.int64)


def processes_of(keys: Ints) -> Ints:
    """The process of each number."""
    return keys >> _SHIFT


def indices_of(keys: Ints) -> Ints:
    """The index of each number."""
    return keys & _INDEX


def merged(parts: Sequence[Ints]) -> Ints:
    """All numbers of several arrays, sorted, each once."""
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)


def by_process(keys: Ints) -> dict[int, Ints]:
    """Indices, sorted, by process."""
    ordered = np.sort(keys)
    processes, starts = np.unique(processes_of(ordered), return_index=True)
    return (
        dict(zip(processes.tolist(), np.split(indices_of(ordered), starts[1:]), strict=True))
        if len(keys)
        else {}
    )


def among(calls: Ints, keys: Ints) -> Bools:
    """Which of these keys are of these calls (sorted keys, each once)."""
    if not len(calls):
        return np.zeros(len(keys), dtype=np.bool_)
    places = np.minimum(np.searchsorted(calls, keys), len(calls) - 1)
    there: Bools = calls[places] == keys
    return there


def place_of(keys: Array, table: Array) -> Ints:
    """Row of each key, or hash, in a table; NONE where it has none, the first where it has
    several.
    """
    if not len(table):
        return np.full(len(keys), NONE, dtype=np.int64)
    first, last = int(table.min()), int(table.max())
    # a place for every number between is less than a search for each
    if last - first < _DENSE * len(table):
        index_of = np.full(last - first + 2, NONE, dtype=np.int64)
        index_of[table[::-1] - first] = np.arange(len(table))[::-1]
        inside = (keys >= first) & (keys <= last)
        rows: Ints = index_of[np.where(inside, keys - first, last - first + 1)]
        return rows
    order = np.argsort(table, kind="stable")
    ordered = table[order]
    at = np.searchsorted(ordered, keys)
    near = np.minimum(at, len(table) - 1)
    return np.where(ordered[near] == keys, order[near], NONE)
