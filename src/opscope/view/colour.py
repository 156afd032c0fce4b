# SPDX-License-Identifier: Apache-2.0
"""A number of each call by an expression that a user wrote, SQL over the columns of calls and
tensors.

SQLite computes it of a batch of outputs at a time, which stand in a table beside their calls.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.run.arrow import NUMBERS
from opscope.run.database import define_functions, index_quoted
from opscope.run.keys import keys_of
from opscope.run.query import chosen_columns
from opscope.run.schema import CALL_TYPES, TENSOR_TYPES

if TYPE_CHECKING:
    from opscope.arrays import Array, Floats, Ints
    from opscope.view.all_calls import AllCalls

_READ, _SELECT = 20, 21
_ALLOWED = frozenset({_READ, _SELECT, 31})  # read a column, select, call a function
# A call's columns that its outputs have as well are theirs alone: no name is of both.
_TABLES = {
    "tensors": TENSOR_TYPES,
    "calls": {name: kind for name, kind in CALL_TYPES.items() if name not in {"process", "index"}},
}


def colours(calls: AllCalls, expression: str) -> Floats:
    """The largest value of the expression over the outputs of each call, NaN where there is none.

    Raises UsageError where it is none.
    """
    values = np.full(len(calls), np.nan)
    with closing(sqlite3.connect("", isolation_level=None)) as connection:
        try:
            asked = _Asked(connection, expression)
            names = ("process", "index", "io", *asked.names["tensors"])
            for process, index, io, *columns in chosen_columns(calls.run, "tensors", names):
                outputs = np.flatnonzero(io == "output")
                rows = calls.rows(keys_of(process[outputs], index[outputs]))
                outputs, rows = outputs[rows >= 0], rows[rows >= 0]
                largest = asked.of(calls, rows, [column[outputs] for column in columns])
                np.fmax.at(values, rows, largest)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise UsageError(f"colour {expression!r}: {_said(str(error))}") from error
    return values


class _Asked:
    """An expression in a database that has tables for a few outputs and their calls."""

    def __init__(self, connection: sqlite3.Connection, expression: str) -> None:
        self._connection = connection
        self._reads: set[tuple[str, str]] = set()
        self._selects = 0  # of the statement that is being compiled
        self._writes = False
        define_functions(connection)
        for table, types in _TABLES.items():
            listed = ", ".join(f'"{name}" {_declared(kind)}' for name, kind in types.items())
            connection.execute(f'CREATE TABLE "{table}" ({listed})')
        connection.set_authorizer(self._authorize)
        own = index_quoted(expression)
        query = f"SELECT ({own}) FROM tensors"  # noqa: S608 - the user's own, which only reads
        # Where rows are chosen nothing may be of several together.
        connection.execute(f"EXPLAIN {query} JOIN calls WHERE ({own})").close()
        self.names = {
            table: [name for name in types if (table, name) in self._reads]
            for table, types in _TABLES.items()
        }
        joined = " JOIN calls ON calls.rowid = tensors.rowid" if self.names["calls"] else ""
        self._query = f"{query}{joined} ORDER BY tensors.rowid"

    def of(self, calls: AllCalls, rows: Ints, outputs: Sequence[Array]) -> Floats:
        """The values of outputs by their columns, of calls by their rows; NaN where there is
        none.
        """
        self._fill("tensors", len(rows), [_cells(column) for column in outputs])
        if self.names["calls"]:
            cells = [calls.cells(name, rows) for name in self.names["calls"]]
            self._fill("calls", len(rows), cells)
        self._selects = 0
        values = [value for (value,) in self._connection.execute(self._query)]
        try:
            return np.array(values, dtype=np.float64)
        except ValueError:
            raise sqlite3.Warning("it is text, not a number") from None

    def _fill(self, table: str, rows: int, columns: Sequence[Iterable[Any]]) -> None:
        names = ", ".join(["rowid", *(f'"{name}"' for name in self.names[table])])
        marks = ", ".join("?" * (1 + len(columns)))
        self._writes = True
        self._connection.execute("BEGIN")
        self._connection.execute(f'DELETE FROM "{table}"')  # noqa: S608 - of the schema
        self._connection.executemany(
            f'INSERT INTO "{table}" ({names}) VALUES ({marks})',  # noqa: S608 - of the schema
            zip(range(rows), *columns, strict=True),
        )
        self._connection.execute("COMMIT")
        self._writes = False

    def _authorize(self, action: int, table: str | None, column: str | None, *_: object) -> int:
        if self._writes:
            return sqlite3.SQLITE_OK
        self._selects += action == _SELECT
        if action == _READ and table is not None and column is not None:
            self._reads.add((table, column))
        allowed = action in _ALLOWED and self._selects <= 1
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _declared(kind: str) -> str:
    """The type of a column; whole numbers are none, that a quotient of them is a fraction."""
    return "REAL" if kind in NUMBERS or kind == "bool" else "TEXT"


def _cells(column: Array) -> Iterable[Any]:
    """A column as SQLite takes it: unsigned numbers by their bits, lists and places as JSON."""
    if column.dtype == np.uint64:
        column = column.view(np.int64)
    cells: list[Any] = column.tolist()
    if column.dtype != object:
        return cells
    return [
        each if each is None or isinstance(each, str) else msgspec.json.encode(each).decode()
        for each in cells
    ]


def _said(reason: str) -> str:
    """What SQLite says of it, told of an expression."""
    if reason == "not authorized" or "prohibited" in reason:
        return "it may name columns of a call and its output, and no more"
    if reason.startswith("You can only execute one statement"):
        return "write one expression"
    if reason.startswith("misuse of "):
        return f"{reason}; it is of one output, the largest is taken of several"
    return f"{reason}; docs/schema.md names columns" if "no such column" in reason else reason
