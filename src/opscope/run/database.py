# SPDX-License-Identifier: Apache-2.0
"""The tables of a run in SQLite, as far as a query reads them.

A query is compiled first, which tells the columns that it names; only these are put into the
database, which is a temporary file beyond what is held of it in memory. SQL comes from a user and
may come with the run: nothing but reading is allowed.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.errors import UnavailableError, UsageError
from opscope.run.query import chosen_columns
from opscope.run.schema import PROCESS_TYPES, TABLES, ValueRef

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opscope.arrays import Array
    from opscope.run.protocol import Run

_OLDEST = (3, 9)  # knows JSON
_FETCH = 4096
_OPERATIONS = 100_000  # of SQLite, some milliseconds
_CACHE = 64 << 20  # bytes of it that are held in memory
_INDEXED = 1000  # rows from which on an index is worth making
_SIGN = 1 << 64
_READ, _ALLOWED = 20, frozenset({20, 21, 31, 33})  # read a column; that, select, call, recur
# By which names SQLite knows types: those that it has not are made again where a result is a column
# as it stands. In "INT" it sees whole numbers.
_DECLARED = {
    "int32": "INT",
    "int64": "INT",
    "uint64": "OPSCOPE_UINT",
    "float64": "REAL",
    "bool": "OPSCOPE_BOOL",
    "string": "TEXT",
}
_TREE = "OPSCOPE_JSON"  # a list, the place of a value
sqlite3.register_converter("OPSCOPE_UINT", lambda digits: int(digits) % _SIGN)
sqlite3.register_converter("OPSCOPE_BOOL", lambda digits: digits != b"0")
sqlite3.register_converter(_TREE, json.loads)

# A column has the name of a keyword, which nobody thinks of who asks for it.
_INDEX = re.compile(r"""'[^']*'|"[^"]*"|\b(index)\b""", re.IGNORECASE)
_TYPES = TABLES | {"processes": PROCESS_TYPES}


class Database:
    """Tables calls, tensors, stacks, judgements and processes of a run.

    Lists and places of values are JSON, an unsigned number is the signed one of the same bits;
    where a result is a column as it stands, it is a list, a dict, the number itself. Raises
    UnavailableError for a Python with an old SQLite.
    """

    def __init__(self, run: Run) -> None:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise UnavailableError(
                f"the SQLite of this Python, {sqlite3.sqlite_version}, is too old: runs are asked "
                "with 3.9 or newer, which every Python of conda, uv or python.org has"
            )
        self.run = run
        self._reads: dict[str, set[str]] = {}  # of the query that is being compiled
        self._connection = sqlite3.connect(
            "", isolation_level=None, check_same_thread=False, detect_types=sqlite3.PARSE_DECLTYPES
        )
        define_functions(self._connection)
        for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE >> 10}"):
            self._connection.execute(f"PRAGMA {setting}")
        for table in _TYPES:
            self._create(table)
        # Their tables are made at their first use, which nobody may do any more below.
        self._connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")
        self._connection.set_authorizer(self._authorize)
        self._writes = False

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def ask(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
        """Rows of a query, by column, as they are asked for; a list among the parameters is JSON:
        IN (SELECT value FROM json_each(?)).

        Raises UsageError for one that cannot be run, or does more than read.
        """
        self._connection.set_progress_handler(lambda: 0, _OPERATIONS)  # lets Python hear Ctrl-C
        given = [_parameter(value) for value in parameters]
        try:
            for table, names in self._named_by(query := index_quoted(query), given).items():
                self._load(table, names)
            cursor = self._connection.execute(query, given)
            columns = _apart([name for name, *_ in cursor.description or ()])
            while rows := cursor.fetchmany(_FETCH):
                yield from (dict(zip(columns, row, strict=True)) for row in rows)
        except (sqlite3.Error, sqlite3.Warning) as error:
            if str(error) == "interrupted":
                raise KeyboardInterrupt from None
            raise UsageError(f"query: {_explained(str(error))}") from error

    def _named_by(self, query: str, given: Sequence[Any]) -> dict[str, set[str]]:
        """The columns that a query names, by table."""
        self._reads = {}
        self._connection.execute(f"EXPLAIN {query}", given).close()
        return _with_joined(self._reads, query)

    def _authorize(self, action: int, table: str | None, column: str | None, *_: object) -> int:
        if action == _READ and table in _TYPES:
            self._reads.setdefault(table, set()).update({column or ""} & _TYPES[table].keys())
        return sqlite3.SQLITE_OK if self._writes or action in _ALLOWED else sqlite3.SQLITE_DENY

    def _create(self, table: str) -> None:
        listed = ", ".join(f'"{name}" {_declared(kind)}' for name, kind in _TYPES[table].items())
        self._connection.execute(f'CREATE TABLE "{table}" ({listed})')

    def _load(self, table: str, names: set[str]) -> None:
        """Fills a table with these columns of its rows; the others are null."""
        order = [name for name in _TYPES[table] if name in names] or list(_TYPES[table])[:1]
        self._writes = True
        try:
            self._connection.execute(f'DROP TABLE "{table}"')
            self._create(table)
            self._connection.execute("BEGIN")
            listed, marks = ", ".join(f'"{name}"' for name in order), ", ".join("?" * len(order))
            cursor = self._connection.executemany(
                f'INSERT INTO "{table}" ({listed}) VALUES ({marks})',  # noqa: S608 - of the schema
                self._rows(table, order),
            )
            if {"process", "index"} <= names and cursor.rowcount > _INDEXED:
                self._connection.execute(
                    f'CREATE INDEX "{table}_by_call" ON "{table}" (process, "index")'
                )
            self._connection.execute("COMMIT")
        finally:
            self._writes = False

    def _rows(self, table: str, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        kinds = [_TYPES[table][name] for name in names]
        if table == "processes":
            columns = [[getattr(each, name) for each in self.run.processes] for name in names]
            batches = iter([[np.fromiter(cells, object, len(cells)) for cells in columns]])
        else:
            batches = chosen_columns(self.run, table, names)
        for batch in batches:
            yield from zip(*map(_cells, kinds, batch), strict=True)


def sql(run: Run, query: str, parameters: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
    """Rows of a query, by column, as they are asked for; UsageError when it cannot be run."""
    with Database(run) as database:
        yield from database.ask(query, parameters)


def _with_joined(reads: dict[str, set[str]], query: str) -> dict[str, set[str]]:
    """With the columns by which tables are joined, where those are not named of each: SQLite tells
    nothing of them.
    """
    words = {word.lower() for word in re.findall(r"\w+", query)}
    if "using" not in words and "natural" not in words:
        return reads
    natural = "natural" in words
    return {
        table: reads.get(table, set()) | {name for name in types if natural or name in words}
        for table, types in _TYPES.items()
        if table in words
    }


def _declared(kind: str) -> str:
    return _DECLARED.get(kind, _TREE)


def _cells(kind: str, column: Array) -> Iterable[Any]:
    """A column as SQLite takes it."""
    if kind == "uint64" and column.dtype != object:
        column = column.view(np.int64)
    cells: list[Any] = column.tolist()
    if kind in _DECLARED:
        return cells
    written: dict[Any, str | None] = {None: None}
    for cell in cells:
        if cell not in written:
            written[cell] = _tree(cell)
    return [written[cell] for cell in cells]


def _tree(cell: Any) -> str:
    if isinstance(cell, ValueRef):
        cell = {"shard": cell.shard, "key": cell.key}
    return json.dumps(cell, separators=(",", ":"))


def _parameter(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, int) and value >= _SIGN >> 1:
        return value - _SIGN
    return json.dumps(list(value)) if isinstance(value, list | tuple | set | frozenset) else value


def define_functions(connection: sqlite3.Connection) -> None:
    """Have a connection know functions of numbers that are told apart from SQLite's own by nobody
    who asks.
    """
    for name, arguments, function in _functions():
        connection.create_function(name, arguments, function, deterministic=True)


def _functions() -> Iterator[tuple[str, int, Callable[..., float | None]]]:
    """Functions of numbers, which not every SQLite has, nor all to the last digit: name, how many
    arguments, -1 for any number.
    """
    for name in ("log2", "log10", "exp", "sqrt", "floor", "ceil"):
        yield name, 1, _of_number(getattr(math, name))
    yield "ln", 1, _of_number(math.log)
    for name, chosen in (("greatest", max), ("least", min)):
        yield name, -1, _of_known(chosen)


def _of_number(function: Callable[[float], float]) -> Callable[..., float | None]:
    """The function where it has a value, else null."""

    def told(number: float | None) -> float | None:
        try:
            return None if number is None else function(number)
        except (ValueError, OverflowError):
            return None

    return told


def _of_known(chosen: Callable[..., float | None]) -> Callable[..., float | None]:
    """One of several numbers, those that are null left out."""
    return lambda *numbers: chosen((each for each in numbers if each is not None), default=None)


def index_quoted(query: str) -> str:
    """A query in which the column index, a keyword of SQL, is quoted everywhere."""
    return _INDEX.sub(_quoted, query)


def _quoted(found: re.Match[str]) -> str:
    return '"index"' if found[1] else found[0]


def _apart(names: Sequence[str]) -> list[str]:
    """Names made different: a join selects "index" twice, a dict holds it once."""
    seen = Counter[str]()
    apart = []
    for name in names:
        seen[name] += 1
        apart.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return apart


def _explained(reason: str) -> str:
    """What SQLite says, with what may have been meant."""
    if reason == "not authorized" or "prohibited" in reason:
        return "a query reads the tables of its run, and no more"
    if reason.startswith("You can only execute one statement"):
        return "write one SELECT; here are several statements"
    missing = re.fullmatch(r"no such (table|column): (?:\w+\.)?(\w+)", reason)
    if missing is None:
        return reason
    columns = {name for types in _TYPES.values() for name in types}
    having = [table for table, types in _TYPES.items() if missing[2] in types]
    near = get_close_matches(missing[2], sorted(_TYPES if missing[1] == "table" else columns), n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    if missing[1] == "column" and having:
        meant = f" in what is asked; it is a column of {' and '.join(having)}"
    return f"{reason}{meant}; docs/schema.md names tables and columns"
