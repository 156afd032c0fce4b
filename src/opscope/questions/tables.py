# SPDX-License-Identifier: Apache-2.0
"""Asking a run: one connection for all queries of a scan, and calls as numbers, (process, index)
packed into one int64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from nanoarrow.c_array import c_array_from_buffers
from nanoarrow.c_array_stream import CArrayStream

from opscope.run.arrow import arrow_schema, schema_of
from opscope.run.query import connect, near

if TYPE_CHECKING:
    from opscope.arrays import Array, Ints
    from opscope.run.protocol import Run

_FETCH = 4096
_SHIFT = 40  # an index stays below 2^40 calls in a process
_INDEX = (1 << _SHIFT) - 1


_COLUMNS = {"process": "int32", "index": "int64"}


class _KeyTable:
    """Calls as an Arrow table of their two columns."""

    def __init__(self, keys: Ints) -> None:
        self._columns = (processes_of(keys).astype(np.int32), keys & _INDEX)

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


def merged(parts: Sequence[Ints]) -> Ints:
    """All numbers of several arrays, sorted, each once."""
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)


def filled(column: Array) -> Array:
    """The numbers of a column, 0 where null."""
    if not isinstance(column, np.ma.MaskedArray):
        return column
    return np.where(np.ma.getmaskarray(column), column.dtype.type(0), np.ma.getdata(column))


def _by_process(keys: Ints) -> dict[int, Ints]:
    """Numbers of calls, sorted, by process."""
    ordered = np.sort(keys)
    processes, starts = np.unique(processes_of(ordered), return_index=True)
    return (
        dict(zip(processes.tolist(), np.split(ordered & _INDEX, starts[1:]), strict=True))
        if len(keys)
        else {}
    )


class Tables:
    """A run and one duckdb connection to it, opened when the first query is made."""

    def __init__(self, run: Run, opened: ExitStack, memory_limit: str | None = None) -> None:
        self.run = run
        self._memory_limit = memory_limit
        self._opened = opened
        self._connection: Any = None

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
            calls = _by_process(wanted)
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
