# SPDX-License-Identifier: Apache-2.0
"""Calls that read integers which wrapped, directly or through arithmetic and conversions: all
finite, so nothing else finds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from opscope.judge.wrapping import WRAPS, follows
from opscope.run.hashes import within_groups
from opscope.run.keys import keys_at, keys_of, merged, processes_of
from opscope.run.query import chosen_columns, filled, keys_where, rows_where, which

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Ints
    from opscope.run.protocol import Run


class _Edges:
    """What leads from one number to another, of many to many."""

    def __init__(self, begins: Ints, ends: Ints) -> None:
        order = np.argsort(begins, kind="stable")
        self._begins, self._ends = begins[order], ends[order]

    def of(self, begins: Ints) -> Ints:
        """Where those lead that begin at these, sorted, each once."""
        first = np.searchsorted(self._begins, begins)
        counts = np.searchsorted(self._begins, begins, side="right") - first
        return np.unique(self._ends[np.repeat(first, counts) + within_groups(counts)])


def wrapped_readers(run: Run, status: Sequence[Ints]) -> Ints:
    """Keys of these calls, sorted; status are keys of the calls that have a status bit."""
    overflowed = merged(status)

    def wrapped(batch: Mapping[str, Array]) -> Bools:
        return np.asarray((filled(batch["status"]) & WRAPS) != 0)

    wraps = keys_where(run, "calls", ("status",), wrapped, overflowed)
    if not wraps.size:
        return wraps
    following = keys_where(run, "calls", ("op",), lambda batch: which(batch["op"], follows))
    return keys_at(_readers(run, _reached(run, wraps, following)))


def _reached(run: Run, wraps: Ints, following: Ints) -> dict[int, Ints]:
    """Versions of what these calls made, and of what following calls made of it, by process."""
    calls, versions, made = _states(run, np.union1d(wraps, following))
    states, numbers = np.unique(_paired(processes_of(calls), versions), return_inverse=True)
    follows_it = np.isin(calls, following)
    read_by = _Edges(numbers[~made & follows_it], calls[~made & follows_it])
    makes = _Edges(calls[made & follows_it], numbers[made & follows_it])
    known = np.zeros(len(states), dtype=np.bool_)
    new = np.unique(numbers[made & np.isin(calls, wraps)])
    while new.size:
        known[new] = True
        further = makes.of(read_by.of(new))
        new = further[~known[further]]
    here = known[numbers]
    return {
        process: np.unique(versions[here & (processes_of(calls) == process)])
        for process in np.unique(processes_of(calls[here])).tolist()
    }


def _paired(processes: Ints, versions: Ints) -> Ints:
    """A number for each process and version."""
    each, numbers = np.unique(versions, return_inverse=True)
    return processes * len(each) + numbers


def _states(run: Run, calls: Ints) -> tuple[Ints, Ints, Bools]:
    """Call, version and whether it is an output, of each row of these calls that has a version."""
    parts: list[tuple[Ints, Ints, Bools]] = []
    names = ("process", "index", "io", "version")
    for process, index, io, version in chosen_columns(run, "tensors", names, calls):
        known = ~np.ma.getmaskarray(version)
        keys = keys_of(process, index)
        parts.append((keys[known], np.ma.getdata(version)[known], (io == "output")[known]))
    if not parts:
        return merged([]), merged([]), np.zeros(0, dtype=np.bool_)
    keys, versions, made = (np.concatenate(each) for each in zip(*parts, strict=True))
    return keys, versions, made


def _readers(run: Run, versions: Mapping[int, Ints]) -> Iterator[tuple[int, int]]:
    """Process and index of the calls that read one of these."""

    def among(batch: Mapping[str, Array]) -> Bools:
        known = ~np.ma.getmaskarray(batch["version"])
        reads = np.zeros(len(known), dtype=np.bool_)
        for process, own in versions.items():
            reads |= (batch["process"] == process) & np.isin(np.ma.getdata(batch["version"]), own)
        return reads & known

    names = ("process", "index", "io", "version")
    for process, index, io, _ in rows_where(run, "tensors", names, among):
        if io == "input":
            yield process, index
