# SPDX-License-Identifier: Apache-2.0
"""Asking a run: one connection for all queries of a scan, and calls as numbers, (process, index)
packed into one int64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from nanoarrow.c_array import c_array_from_buffers
from nanoarrow.c_array_stream import CArrayStream

from opscope.run.arrow import arrow_schema, schema_of
from opscope.run.database import Database
from opscope.run.keys import by_process, indices_of, processes_of
from opscope.run.query import connect, near

if TYPE_CHECKING:
    from opscope.arrays import Array, Ints
    from opscope.run.protocol import Run

_FETCH = 4096

_COLUMNS: dict[str, str] = {"process": "int32", "index": "int64"}


class _KeyTable:
    """Calls as an Arrow table of their two columns."""

    def __init__(self, keys: Ints) -> None:
        self._columns: tuple[Any, ...] = (processes_of(keys).astype(np.int32), indices_of(keys))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        kinds = _COLUMNS.values()
        children = [
            c_array_from_buffers(
                arrow_schema(kind), len(values), [None, np.ascontiguousarray(values)], null_count=0
            )
            for kind, values in zip(kinds, self._columns, strict=True)
        ]
        whole = c_array_from_buffers(
            schema_of(_COLUMNS), len(self._columns[0]), [None], null_count=0, children=children
        )
        return CArrayStream.from_c_arrays([whole], schema_of(_COLUMNS)).__arrow_c_stream__(
            requested_schema
        )


def filled(column: Array) -> Array:
    """The numbers of a column, 0 where null."""
    if not isinstance(column, np.ma.MaskedArray):
        return column
    return np.where(np.ma.getmaskarray(column), column.dtype.type(0), np.ma.getdata(column))


class Tables:
    """A run and one duckdb connection to it, opened when the first query is made."""

    def __init__(self, run: Run, opened: ExitStack, memory_limit: str | None = None) -> None:
        self.run = run
        self._memory_limit = memory_limit
        self._opened = opened
        self._connection: Any = None

    @cached_property
    def database(self) -> Database:
        """The same in SQLite."""
        return self._opened.enter_context(Database(self.run))

    def rows(
        self, query: str, parameters: Sequence[Any] = (), *, wanted: Ints | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows of a query of our own.

        wanted gives it a view wanted(process, "index") of these calls, and near_calls and
        near_tensors, which hold at least their rows.
        """
        return list(self.stream(query, parameters, wanted=wanted))

    def stream(
        self, query: str, parameters: Sequence[Any] = (), *, wanted: Ints | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """The same, fetched as they are asked for."""
        if self._connection is None:
            self._connection = self._opened.enter_context(
                connect(self.run, memory_limit=self._memory_limit)
            )
        if wanted is not None:
            self._connection.register("wanted", _KeyTable(wanted))
            calls = by_process(wanted)
            for table in ("calls", "tensors"):
                self._connection.register(f"near_{table}", near(self.run, table, calls))
        cursor = self._connection.execute(query, list(parameters))
        while rows := cursor.fetchmany(_FETCH):
            yield from rows


@contextmanager
def open_tables(run: Run, *, memory_limit: str | None = None) -> Iterator[Tables]:
    """Tables of a run, to be asked within the block; memory_limit as in query.connect."""
    with ExitStack() as opened:
        yield Tables(run, opened, memory_limit)
