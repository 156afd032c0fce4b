# SPDX-License-Identifier: Apache-2.0
"""Shrinking one segment of the tables to the extremes of each operator."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from opscope.run.arrow import Column, column_values, valid_rows
from opscope.run.store.ipc import IpcFile
from opscope.run.store.layout import segment_name
from opscope.run.store.retention import Extremes, Operator, Range

_COUNTS = ("nan", "pos_inf", "neg_inf", "near_limit")


def segment_extremes(directory: Path, number: int) -> Range | None:
    """Extremes of every operator in one segment of calls and tensors, or None when it holds no
    call.

    Tensor rows belong to the operator of their call; rows whose call is not in the segment count
    for none.
    """
    path = directory / segment_name("calls", number)
    if not path.exists():
        return None
    indices, steps, operators = _calls(path)
    if not len(indices):
        return None
    numbers: defaultdict[Operator, int] = defaultdict(itertools.count().__next__)
    group = np.array([numbers[operator] for operator in operators], dtype=np.int64)
    order = np.argsort(indices, kind="stable")
    totals = _Totals(len(numbers))
    totals.calls += np.bincount(group, minlength=len(numbers))
    tensors = directory / segment_name("tensors", number)
    if tensors.exists():
        _add_tensors(tensors, totals, indices[order], group[order])
    return Range(
        int(steps.min()),
        int(steps.max()),
        {name: totals.extremes(number) for name, number in numbers.items()},
    )


def _calls(path: Path) -> tuple[Any, Any, list[Operator]]:
    file = IpcFile(
        path, mapped=False
    )  # this is the watched program: a mapped file that somebody cuts would kill it
    indices = [file.column(batch, "index").buffers[0] for batch in file.batches]
    steps = [file.column(batch, "step").buffers[0] for batch in file.batches]
    operators: list[Operator] = []
    for batch in file.batches:
        columns = [column_values(file.column(batch, name)) for name in ("op", "module", "phase")]
        operators.extend(zip(*columns, strict=True))
    empty = [np.empty(0, dtype=np.int64)]
    return np.concatenate(indices or empty), np.concatenate(steps or empty), operators


class _Totals:
    """Running extremes of every operator, one array element each."""

    def __init__(self, operators: int) -> None:
        self.calls = np.zeros(operators, dtype=np.int64)
        self.min = np.full(operators, np.inf)
        self.max = np.full(operators, -np.inf)
        self.counts = {name: np.zeros(operators, dtype=np.int64) for name in _COUNTS}

    def extremes(self, number: int) -> Extremes:
        smallest, largest = float(self.min[number]), float(self.max[number])
        return Extremes(
            calls=int(self.calls[number]),
            min=smallest if np.isfinite(smallest) else None,
            max=largest if np.isfinite(largest) else None,
            **{name: int(counts[number]) for name, counts in self.counts.items()},
        )


def _add_tensors(path: Path, totals: _Totals, indices: Any, group: Any) -> None:
    file = IpcFile(path, mapped=False)
    for batch in file.batches:
        index = file.column(batch, "index").buffers[0]
        found = np.minimum(np.searchsorted(indices, index), len(indices) - 1)
        known = indices[found] == index
        operator = group[found]
        for name, counts in totals.counts.items():
            values, valid = _filled(file.column(batch, name))
            np.add.at(counts, operator[known & valid], values[known & valid])
        for name, ufunc, total in (
            ("min", np.minimum, totals.min),
            ("max", np.maximum, totals.max),
        ):
            values, valid = _filled(file.column(batch, name))
            use = known & valid
            ufunc.at(total, operator[use], values[use])


def _filled(column: Column) -> tuple[Any, Any]:
    valid = valid_rows(column)
    return column.buffers[0], np.ones(column.length, dtype=bool) if valid is None else valid
