# SPDX-License-Identifier: Apache-2.0
"""Single columns of a run's tables as Python values, for any of their rows: what a table of
millions of rows is written from.

A record of a row has thirty fields; the tables that people read need a third of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.run.access import access_of
from opscope.run.arrow import column_values, sliced
from opscope.run.hashes import distinct
from opscope.run.query import arrow_columns

if TYPE_CHECKING:
    from opscope.arrays import Ints
    from opscope.compare.side.columns import Side
    from opscope.run.protocol import Run


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
