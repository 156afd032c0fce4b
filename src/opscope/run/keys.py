# SPDX-License-Identifier: Apache-2.0
"""Calls as numbers: process and index packed into one int64."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from opscope.arrays import Array, Ints

_SHIFT = 40  # an index stays below 2^40 calls in a process
_INDEX = (1 << _SHIFT) - 1


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
