# SPDX-License-Identifier: Apache-2.0
"""The tables of a run in SQLite, as far as a query reads them.

A query is compiled first, which tells the columns that it names; only these are put into the
database, which is a temporary file beyond what is held of it in memory. SQL comes from a user and
may come with the run: nothing but reading is allowed.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.errors import UnavailableError, UsageError
from opscope.run.query import chosen_columns
from opscope.run.schema import PROCESS_TYPES, TABLES, ValueRef

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from opscope.arrays import Array, Ints
    from opscope.run.protocol import Run

_OLDEST = (3, 25)  # has window functions
_FETCH = 4096
_OPERATIONS = 100_000  # of SQLite, some milliseconds
_CACHE = 64 << 20
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
_NEAR = {"near_calls": "calls", "near_tensors": "tensors"}
_TYPES = TABLES | {"processes": PROCESS_TYPES} | {near: TABLES[of] for near, of in _NEAR.items()}


class Database:
    """Tables calls, tensors, stacks, judgements and processes of a run; near_calls and near_tensors
    are the rows of the calls that a query wants.

    Lists and places of values are JSON, an unsigned number is the signed one of the same bits;
    where a result is a column as it stands, it is a list, a dict, the number itself. cache: bytes
    of it that are held in memory. Raises UnavailableError for a Python with an old SQLite.
    """

    def __init__(self, run: Run, *, cache: int = _CACHE) -> None:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise UnavailableError(
                f"the SQLite of this Python, {sqlite3.sqlite_version}, is too old: runs are asked "
                "with 3.25 or newer, which every Python of conda, uv or python.org has"
            )
        self.run = run
        self._columns: dict[str, frozenset[str]] = {}  # of each table, what is loaded
        self._near: Ints | None = None  # whose rows near_calls and near_tensors hold
        self._named: dict[str, dict[str, set[str]]] = {}  # columns by table of each query
        self._reads: dict[str, set[str]] | None = None  # of the query that is being compiled
        self._connection = sqlite3.connect(
            "", isolation_level=None, check_same_thread=False, detect_types=sqlite3.PARSE_DECLTYPES
        )
        for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{cache >> 10}"):
            self._connection.execute(f"PRAGMA {setting}")
        for table in _TYPES:
            self._create(table)
        # Their tables are made at their first use, which nobody may do any more below.
        self._connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")
        self._connection.set_authorizer(self._authorize)
        self._writes = False

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def rows(
        self, query: str, parameters: Sequence[Any] = (), *, near: Ints | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows of a query; near: keys of the calls whose rows are in near_calls and
        near_tensors, sorted, each once.

        A list of parameters is handed over as JSON: IN (SELECT value FROM json_each(?)).
        """
        return self._execute(query, parameters, near).fetchall()

    def ask(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
        """Rows of a query that a user wrote, by column, as they are asked for.

        Raises UsageError for one that cannot be run, or does more than read.
        """
        self._connection.set_progress_handler(
            lambda: 0, _OPERATIONS
        )  # Python hears of Ctrl-C there
        try:
            cursor = self._execute(_INDEX.sub(_quoted, query), parameters)
            names = _apart([name for name, *_ in cursor.description or ()])
            for row in _fetched(cursor):
                yield dict(zip(names, row, strict=True))
        except (sqlite3.Error, sqlite3.Warning) as error:
            if str(error) == "interrupted":
                raise KeyboardInterrupt from None
            raise UsageError(f"query: {_explained(str(error))}") from error

    def _execute(
        self, query: str, parameters: Sequence[Any], near: Ints | None = None
    ) -> sqlite3.Cursor:
        if near is not None and near is not self._near:
            self._near = near
            for table in _NEAR:
                self._columns.pop(table, None)
        given = [_parameter(value) for value in parameters]
        for table, names in self._named_by(query, given).items():
            loaded = self._columns.get(table, frozenset())
            if table not in self._columns or not names <= loaded:
                self._load(table, loaded | names)
        return self._connection.execute(query, given)

    def _named_by(self, query: str, given: Sequence[Any]) -> dict[str, set[str]]:
        if query not in self._named:
            self._reads = {}
            try:
                self._connection.execute(f"EXPLAIN {query}", given).close()
                self._named[query] = _with_joined(self._reads, query)
            finally:
                self._reads = None
        return self._named[query]

    def _authorize(self, action: int, table: str | None, column: str | None, *_: object) -> int:
        if action == _READ and self._reads is not None and table in _TYPES:
            names = self._reads.setdefault(table, set())
            if column in _TYPES[table]:
                names.add(column)
        return sqlite3.SQLITE_OK if self._writes or action in _ALLOWED else sqlite3.SQLITE_DENY

    def _create(self, table: str) -> None:
        listed = ", ".join(f'"{name}" {_declared(kind)}' for name, kind in _TYPES[table].items())
        self._connection.execute(f'CREATE TABLE "{table}" ({listed})')

    def _load(self, table: str, names: frozenset[str]) -> None:
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
        self._columns[table] = names

    def _rows(self, table: str, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        kinds = [_TYPES[table][name] for name in names]
        near = self._near if table in _NEAR else None
        if table == "processes":
            columns = [[getattr(each, name) for each in self.run.processes] for name in names]
            batches = iter([[np.fromiter(cells, object, len(cells)) for cells in columns]])
        else:
            batches = chosen_columns(self.run, _NEAR.get(table, table), names, near)
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


def _fetched(cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
    while rows := cursor.fetchmany(_FETCH):
        yield from rows


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
    known = (
        _TYPES if missing[1] == "table" else {name for types in _TYPES.values() for name in types}
    )
    near = get_close_matches(missing[2], sorted(known), n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"{reason}{meant}; docs/schema.md names tables and columns"
