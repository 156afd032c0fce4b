# SPDX-License-Identifier: Apache-2.0
"""From places in columns back to what a run's tables hold there: records of the few rows that are
told, single columns of any rows, as a table of millions of them is written from.

A record of a row has thirty fields; the tables that people read need a third of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.kernels.reference import MANTISSAS
from opscope.run.access import access_of
from opscope.run.arrow import column_values, sliced
from opscope.run.hashes import distinct
from opscope.run.keys import NONE
from opscope.run.query import arrow_columns, records_at
from opscope.run.whole_tables import WholeTable

if TYPE_CHECKING:
    from opscope.arrays import Array, Floats, Ints, Words
    from opscope.compare.side.columns import Side
    from opscope.run.finding import Finding
    from opscope.run.protocol import Run
    from opscope.run.schema import Call, Tensor


def lines_of_calls(side: Side) -> Words:
    """A hash of the line in which each call of a side stands."""
    lines: Words = WholeTable(side.run, "calls").hashes("source")[side.calls.row]
    return lines


def call_records(side: Side, calls: Iterable[int]) -> dict[int, Call]:
    """Complete records of calls, by their place in Side.calls."""
    wanted = np.unique(np.fromiter(calls, dtype=np.int64))
    wanted = wanted[wanted >= 0]
    return dict(
        zip(
            wanted.tolist(),
            records_at(side.run, "calls", side.calls.row[wanted].tolist()),
            strict=True,
        )
    )


def call_of(side: Side, finding: Finding) -> int:
    """The place in Side.calls of the call that a finding names; NONE where the side has none."""
    calls = side.calls
    matching = np.flatnonzero(
        (calls.rank == finding.rank)
        & (calls.step == finding.step)
        & (calls.index == (NONE if finding.index is None else finding.index))
    )
    return int(matching[0]) if len(matching) else NONE


def tensor_records(side: Side, places: Ints) -> dict[int, Tensor]:
    """Complete records of tensor rows, by their place in Side.tensors."""
    if side.base is not None and side.places is not None:
        found_below = tensor_records(side.base, side.places[places])
        return {
            row: found_below[below]
            for row, below in zip(places.tolist(), side.places[places].tolist(), strict=True)
        }
    return dict(
        zip(
            places.tolist(),
            records_at(side.run, "tensors", side.tensors.row[places].tolist()),
            strict=True,
        )
    )


def samples_of(side: Side, rows: Ints) -> Floats:
    """The samples of tensor rows, each a row; NaN where there is none."""
    if side.base is not None and side.places is not None:
        return samples_of(side.base, side.places[rows])
    samples = np.full((len(rows), len(MANTISSAS)), np.nan)
    for at, sample in enumerate(Cells(side).of_tensors("sample", rows)):
        if sample is not None and len(sample) == len(MANTISSAS):  # a file may say anything
            samples[at] = sample
    return samples


def value_of(side: Side, row: int) -> Array:
    """The elements of one of a side's tensors; MissingValueError where they were not kept."""
    return side.run.value(tensor_records(side, np.array([row], dtype=np.int64))[row])


class Cells:
    """Values of calls and tensors of a side by their places in Side.calls and Side.tensors; NONE
    has None.
    """

    def __init__(self, side: Side) -> None:
        self._side = side
        self._calls, self._tensors = _Table(side.run, "calls"), _Table(side.run, "tensors")

    def of_calls(self, name: str, places: Ints) -> list[Any]:
        """A column of table calls; places may come often, each is looked up once."""
        wanted = distinct(places)
        wanted = wanted[wanted >= 0]
        known = dict(
            zip(
                wanted.tolist(), self._calls.values(name, self._side.calls.row[wanted]), strict=True
            )
        )
        return [known.get(call) for call in places.tolist()]

    def of_tensors(self, name: str, places: Ints) -> list[Any]:
        """A column of table tensors."""
        there = places >= 0
        if there.all():
            return self._tensors.values(name, self._side.tensors.row[places])
        values = iter(self._tensors.values(name, self._side.tensors.row[places[there]]))
        return [next(values) if known else None for known in there.tolist()]


class _Table:
    """One table: records where the run holds them, else batches of Arrow columns."""

    def __init__(self, run: Run, table: str) -> None:
        own = access_of(run).rows
        self._records = None if own is None else own(table)
        self._batches = list(arrow_columns(run, table)) if own is None else []
        self._ends = np.cumsum([batch["index"].length for batch in self._batches], dtype=np.int64)

    def values(self, name: str, rows: Ints) -> list[Any]:
        """A column of rows by their number in the table, None for null."""
        if self._records is not None:
            return [getattr(self._records[row], name) for row in rows.tolist()]
        batches = np.searchsorted(self._ends, rows, side="right")
        cells: list[Any] = [None] * len(rows)
        for number in distinct(batches).tolist():
            chosen = np.flatnonzero(batches == number)
            column = self._batches[number][name]
            here = rows[chosen] - (int(self._ends[number]) - column.length)
            first, last = int(here.min()), int(here.max()) + 1
            values = column_values(sliced(column, first, last - first))
            for index, at in zip(chosen.tolist(), (here - first).tolist(), strict=True):
                cells[index] = values[at]
        return cells
