# SPDX-License-Identifier: Apache-2.0
"""The tables of a process on disk: which segment rows go to, and what happens to steps that are out
of --keep.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from opscope.run.arrow import (
    Column,
    column_of_view,
    column_values,
    encode_columns,
    schema_of,
    table_schema,
    valid_rows,
)
from opscope.run.schema import TABLES, Process
from opscope.run.store.ipc import IpcFile
from opscope.run.store.layout import EXTREMES, SEGMENTED, segment_name
from opscope.run.store.retention import (
    EXTREMES_TYPES,
    STEP_CALLS,
    Extremes,
    Operator,
    Range,
    Segment,
    add_range,
    extremes_columns,
    outdated,
)
from opscope.run.store.tables import TableFile
from opscope.run.store.values import ValueStore

FORGOTTEN_AT_ONCE = 16  # segments; short steps fill them faster than one by one can be shrunk


class SegmentedTables:
    """The open table files of a process; used by one thread. Every method may raise OSError."""

    def __init__(
        self, directory: Path, process: Process, values: ValueStore, *, keep: int | None
    ) -> None:
        self._directory = directory
        self._process = process
        self._values = values
        self._keep = keep
        self._files: dict[str, TableFile] = {}
        self._current = Segment(0)
        self._closed: list[Segment] = []
        self._last = -1  # step when the latest segment ended
        self._ranges: list[Range] = []
        self._whole: dict[str, int] = {}  # rows of the tables that have no segments
        self._row_bytes: dict[str, int] = {}
        self._calls = 0  # since a step ended, or counted as one
        self._extra = 0  # how many steps were counted beside those that ended
        self._suspicious = False  # one of these calls has overflow bits

    def write(self, table: str, batch: Any, *, step: int) -> None:
        """Append rows of one step; calls come before their tensors."""
        if table == "calls" and self._keep is not None:
            self._count_calls(batch, step)
        file = self._files.get(table)
        if file is None:
            number = self._current.number if table in SEGMENTED else 0
            file = self._files[table] = TableFile(
                self._directory / segment_name(table, number), table_schema(table)
            )
        before = file.size
        file.write(batch)
        self._row_bytes[table] = max(256, (file.size - before) // max(1, batch.length))
        counts = self._current.rows if table in SEGMENTED else self._whole
        counts[table] = counts.get(table, 0) + int(batch.length)
        if table in SEGMENTED:
            self._current.steps.add(step + self._extra)
        if table == "tensors":
            self._current.shards |= shards_of(batch)

    def row_bytes(self, table: str) -> int:
        """About how many bytes a row of a table takes, from those written last; safe to ask from
        any thread.
        """
        return self._row_bytes.get(table, 512)

    def rows(self) -> dict[str, int]:
        """Rows by table that are on disk: those of deleted segments are not."""
        kept = [segment.rows for segment in (*self._closed, self._current)]
        return {
            table: total
            for table in SEGMENTED
            if (total := sum(rows.get(table, 0) for rows in kept))
        } | self._whole

    def end_step(self, step: int, *, finding: bool, touched: Iterable[str]) -> None:
        """Note that a step is over; begin a new segment and delete outdated ones when it is
        time.
        """
        self._current.shards |= set(touched)
        self._calls, self._suspicious = 0, False
        self._count_step(step, finding=finding)

    def _count_calls(self, batch: Any, step: int) -> None:
        """Note that calls come; a step that has gone on for STEP_CALLS of them counts as over."""
        if self._calls >= STEP_CALLS:
            finding, self._calls, self._suspicious = self._suspicious, 0, False
            self._current.shards |= self._values.take_touched()
            self._count_step(step, finding=finding)
            self._extra += 1
        self._calls += batch.length
        status = batch.view().child(list(TABLES["calls"]).index("status"))
        self._suspicious = self._suspicious or status.null_count < status.length

    def _count_step(self, step: int, *, finding: bool) -> None:
        last = step + self._extra
        self._current.steps.add(last)
        self._current.ended += 1
        self._current.finding |= finding
        if self._keep is None or self._current.ended < max(1, self._keep // 4):
            return
        for table in SEGMENTED:
            file = self._files.pop(table, None)
            if file is not None:
                file.close()
        self._closed.append(self._current)
        self._current = Segment(self._current.number + 1)
        self._last = last
        old = outdated(self._closed, last_step=last, keep=self._keep)
        if len(old) >= FORGOTTEN_AT_ONCE or any(segment.shards for segment in old):
            self._forget(old)

    def tidy(self) -> None:
        """Delete what is out of --keep; it is noticed at the latest when as much again has been
        written.
        """
        if self._keep is not None:
            self._forget(outdated(self._closed, last_step=self._last, keep=self._keep))

    def close(self) -> None:
        """Mark the end of every table."""
        self.tidy()
        for file in self._files.values():
            file.close()
        self._files = {}

    def abandon(self) -> None:
        """Close the files as they are."""
        for file in self._files.values():
            file.abandon()
        self._files = {}

    def _forget(self, segments: list[Segment]) -> None:
        if not segments:
            return
        for extremes in (segment_extremes(self._directory, segment.number) for segment in segments):
            self._ranges = self._ranges if extremes is None else add_range(self._ranges, extremes)
        self._write_extremes()
        for segment in segments:
            for table in SEGMENTED:
                (self._directory / segment_name(table, segment.number)).unlink(missing_ok=True)
        gone = {id(segment) for segment in segments}
        self._closed = [segment for segment in self._closed if id(segment) not in gone]
        needed = self._current.shards.union(*(segment.shards for segment in self._closed))
        self._values.delete(set().union(*(segment.shards for segment in segments)) - needed)

    def _write_extremes(self) -> None:
        columns = extremes_columns(
            self._ranges, process=self._process.process, rank=self._process.rank
        )
        path = self._directory / EXTREMES
        beside = path.with_suffix(".partial")
        beside.unlink(missing_ok=True)
        file = TableFile(beside, schema_of(EXTREMES_TYPES))
        try:
            file.write(encode_columns(EXTREMES_TYPES, columns))
        finally:
            file.close()
        beside.rename(path)


def shards_of(batch: Any) -> set[str]:
    """Names of the shards that the value column of a tensors batch points into."""
    view = batch.view().child(list(TABLES["tensors"]).index("value"))
    if view.null_count == view.length:
        return set()
    shards = column_of_view("string", view.child(0))
    ends = shards.buffers[0][shards.offset : shards.offset + shards.length + 1].tolist()
    data = shards.buffers[1].tobytes()
    names = {data[start:end] for start, end in itertools.pairwise(ends)}
    return {name.decode("utf-8", "replace") for name in names if name}


# Shrinking one segment of the tables to the extremes of each operator.

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
        position = np.minimum(np.searchsorted(indices, index), len(indices) - 1)
        known = indices[position] == index
        operator = group[position]
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
