# SPDX-License-Identifier: Apache-2.0
"""Asking a run: SQL over its tables, its calls in order, the tensors of a call, single columns as
arrays.

Everything is read lazily and works on runs larger than memory. SQL comes from a user and may come
with the run, so the database can neither read nor write files, load extensions, nor see Python's
variables.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.errors import UsageError
from opscope.run.access import access_of
from opscope.run.arrow import (
    ROWS_PER_BATCH,
    Batch,
    Column,
    RecordColumns,
    RowsTable,
    StoredRecords,
    column_array,
    decode_stream,
    owned,
    stream_batches,
    struct_columns,
)
from opscope.run.keys import indices_of, keys_at, keys_of, merged, processes_of
from opscope.run.schema import RECORDS, TABLES, Call, Tensor, ValueRef
from opscope.run.selection import Selection

if TYPE_CHECKING:
    import duckdb

    from opscope.arrays import Array, Bools, Ints
    from opscope.run.protocol import ArrowStream, Run

_ROWS_PER_FETCH = 2048
_SETTINGS = (
    "SET python_enable_replacements = false",
    "SET autoload_known_extensions = false",
    "SET autoinstall_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


def database(*, memory_limit: str | None = None) -> duckdb.DuckDBPyConnection:
    """An empty database in memory, silent on stdout.

    memory_limit ("256MB") bounds what duckdb keeps in memory; larger sorts and joins go to a
    temporary directory that is removed at the end.
    """
    import tempfile
    import uuid
    from pathlib import Path

    import duckdb

    connection = duckdb.connect(":memory:")
    # The database makes this folder when it first needs it, and removes it when it closes.
    spill = Path(tempfile.gettempdir(), f"opscope-{uuid.uuid4().hex}")
    connection.execute("SET temp_directory = ?", [str(spill)])
    if memory_limit is not None:
        connection.execute("SET memory_limit = ?", [memory_limit])
    ((bar,),) = connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()
    # stdout is the document's; a notebook without ipywidgets has no bar and refuses to be told so
    if bar:
        connection.execute("SET enable_progress_bar = false")
    return connection


@contextmanager
def connect(run: Run, *, memory_limit: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A duckdb connection with the views calls, tensors, stacks, judgements and processes of a run;
    memory_limit as in database.
    """
    with database(memory_limit=memory_limit) as connection:
        for table in TABLES:
            connection.register(table, run.table(table))
        connection.register("processes", _processes(run))
        for setting in _SETTINGS:
            connection.execute(setting)
        yield connection


class Often:
    """A run of which much is asked: one connection for all its queries, which it has while the
    with-block lasts.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._open = ExitStack()

    def __enter__(self) -> Often:
        connection = self._open.enter_context(connect(self._run))
        self.access = dataclasses.replace(access_of(self._run), connection=connection)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)


def _processes(run: Run) -> RowsTable:
    return RowsTable("processes", run.processes)


def sql(
    run: Run, query: str, parameters: Sequence[Any] = (), *, memory_limit: str | None = None
) -> Iterator[dict[str, Any]]:
    """Rows of a SQL query, as dicts by column, fetched as they are asked for; UsageError when it
    cannot be run.
    """
    import duckdb

    kept = access_of(run).connection
    with (
        connect(run, memory_limit=memory_limit) if kept is None else nullcontext(kept) as connection
    ):
        try:
            statements = len(connection.extract_statements(query))
            if statements != 1:
                raise UsageError(
                    f"query: write one SELECT; here are {statements or 'no'} statements"
                )
            cursor = connection.execute(query, list(parameters))
            names = _unique([column[0] for column in cursor.description or ()])
            # A connection of several queries holds the rows of the last one alone.
            while rows := cursor.fetchmany(_ROWS_PER_FETCH) if kept is None else cursor.fetchall():
                for row in rows:
                    yield dict(zip(names, row, strict=True))
        except duckdb.Error as error:
            raise UsageError(f"query: {_said(str(error))}") from error


def calls(run: Run, selection: Selection | None = None) -> Iterator[Call]:
    """The calls that are meant, by rank, process, step and index."""
    wanted = Selection() if selection is None else selection
    access = access_of(run)
    if access.rows is not None:
        rows = sorted(
            access.rows("calls"), key=lambda call: (call.rank, call.process, call.step, call.index)
        )
        yield from (call for call in rows if wanted.wants_call(call))
        return
    if access.calls is not None:
        yield from access.calls(wanted)
        return
    where, parameters = _where(wanted)
    query = f'SELECT * FROM calls {where} ORDER BY rank, process, step, "index"'  # noqa: S608 - built from fixed text
    for row in sql(run, query, parameters):
        call = Call(**row)
        if wanted.wants_op(call.op, call.name, call.module):
            yield call


def tensors_of(run: Run, call: Call, *, io: str = "both") -> tuple[Tensor, ...]:
    """Tensor rows of one call, in the order they were recorded; io is "input", "output" or
    "both".
    """
    return tuple(row for row in tensors_at(run, call.process, call.index) if io in ("both", row.io))


def tensors_at(run: Run, process: int, index: int) -> Sequence[Tensor]:
    """Tensor rows of the call of this number, in the order they were recorded."""
    tensors_of_call = access_of(run).tensors_of
    if tensors_of_call is not None:
        return tensors_of_call(process, index)
    return [
        _tensor(row)
        for row in sql(
            run, 'SELECT * FROM tensors WHERE process = ? AND "index" = ?', [process, index]
        )
    ]


def columns(
    run: Run, table: str, names: Sequence[str], near: Ints | None = None
) -> Iterator[Mapping[str, Array]]:
    """Some columns of a table, a batch at a time, without making records.

    Numbers and bool come as arrays of the column's type, masked (np.ma) where rows are null; text,
    lists and structs as object arrays with None where null. near: sorted keys of calls; batches
    that hold none of them may be left out.
    """
    own = access_of(run).columns
    if own is not None:
        yield from own(table, names, near)
        return
    in_memory = access_of(run).rows
    if in_memory is not None:
        rows = _near_of(in_memory(table), near)
        for start in range(0, len(rows), ROWS_PER_BATCH):
            yield RecordColumns(table, names, rows[start : start + ROWS_PER_BATCH])
        return
    order = list(TABLES[table])
    for batch in stream_batches(table, run.table(table)):
        arrays = struct_columns(TABLES[table], batch)
        yield {name: column_array(arrays[order.index(name)]) for name in names}


def _near_of(rows: Sequence[Any], near: Ints | None) -> Sequence[Any]:
    if near is None:
        return rows
    wanted = frozenset(zip(processes_of(near).tolist(), indices_of(near).tolist(), strict=True))
    return [row for row in rows if (row.process, row.index) in wanted]


def chosen_columns(
    run: Run, table: str, names: Sequence[str], calls: Ints | None = None
) -> Iterator[list[Array]]:
    """The same columns in their order, of the rows of these calls alone (sorted keys, each once),
    of all rows without them.
    """
    for batch in _batches_of(run, table, names, calls):
        yield [batch[name] for name in names]


def _batches_of(
    run: Run, table: str, names: Sequence[str], calls: Ints | None
) -> Iterator[Mapping[str, Array]]:
    if calls is None:
        yield from columns(run, table, names)
        return
    for batch in columns(run, table, ("process", "index", *names), calls) if len(calls) else ():
        keys = keys_of(batch["process"], batch["index"])
        places = np.minimum(np.searchsorted(calls, keys), len(calls) - 1)
        yield from _at(batch, calls[places] == keys)


def _at(batch: Mapping[str, Array], chosen: Bools) -> Iterator[Mapping[str, Array]]:
    """The chosen rows of a batch, where there are any; texts are decoded of these alone, where they
    lie in a file.
    """
    rows = np.flatnonzero(chosen)
    if len(rows) == len(chosen):
        yield batch
    elif isinstance(batch, Batch):
        yield from [batch.at(rows)] if len(rows) else []
    elif len(rows):
        yield {name: column[rows] for name, column in batch.items()}


def rows_of(
    run: Run, table: str, names: Sequence[str], calls: Ints | None = None
) -> Iterator[tuple[Any, ...]]:
    """The same as tuples of Python's values."""
    for batch in chosen_columns(run, table, names, calls):
        yield from zip(*(column.tolist() for column in batch), strict=True)


def rows_where(
    run: Run,
    table: str,
    names: Sequence[str],
    chosen: Callable[[Mapping[str, Array]], Bools],
    calls: Ints | None = None,
) -> Iterator[tuple[Any, ...]]:
    """Those of these rows of which something holds that these columns tell; chosen is asked of a
    batch of them, and what it does not look at is read of the chosen rows alone.
    """
    for batch in _batches_of(run, table, names, calls):
        for part in _at(batch, chosen(batch)):
            yield from zip(*(part[name].tolist() for name in names), strict=True)


def records_of(run: Run, table: str, calls: Ints) -> Iterator[Any]:
    """Records of the rows of these calls, in the order of the table."""
    names, record = tuple(TABLES[table]), RECORDS[table]
    for row in rows_of(run, table, names, calls):
        yield record(**dict(zip(names, row, strict=True)))


def call_at(run: Run, process: int, index: int) -> Call | None:
    """The call of this number, None where there is none."""
    in_memory = access_of(run).rows
    if in_memory is None:
        return next(records_of(run, "calls", keys_at([(process, index)])), None)
    rows: Sequence[Call] = in_memory("calls")
    return next((row for row in rows if row.index == index and row.process == process), None)


def keys_where(
    run: Run,
    table: str,
    names: Sequence[str],
    chosen: Callable[[Mapping[str, Array]], Bools],
    calls: Ints | None = None,
) -> Ints:
    """Keys of the calls, sorted, each once, of whose rows something holds that these columns tell;
    chosen is asked of a batch of them. calls: those that are looked at, sorted, each once.
    """
    parts = []
    for batch in _batches_of(run, table, ("process", "index", *names), calls):
        rows = np.flatnonzero(chosen(batch))
        if len(rows):
            parts.append(np.unique(keys_of(batch["process"][rows], batch["index"][rows])))
    return merged(parts)


def which(texts: Array, holds: Callable[[Any], bool]) -> Bools:
    """Of which of these texts, None where there is none, something holds; asked once for each
    text.
    """
    known: dict[Any, bool] = {}
    for text in texts:
        if text not in known:
            known[text] = holds(text)
    return np.fromiter(map(known.__getitem__, texts), bool, len(texts))


def arrow_columns(run: Run, table: str) -> Iterator[Mapping[str, Column]]:
    """All columns of a table as they lie in Arrow, a batch at a time: no Python object is made for
    a row.
    """
    own, in_memory = access_of(run).arrow_columns, access_of(run).rows
    if own is not None:
        yield from own(table)
        return
    if in_memory is not None:
        rows = in_memory(table)
        for start in range(0, len(rows), ROWS_PER_BATCH):
            yield StoredRecords(table, rows[start : start + ROWS_PER_BATCH])
        return
    for batch in stream_batches(table, run.table(table)):
        yield dict(
            zip(TABLES[table], map(owned, struct_columns(TABLES[table], batch)), strict=True)
        )


def near(
    run: Run, table: str, calls: Mapping[int, np.ndarray[Any, np.dtype[np.int64]]]
) -> ArrowStream:
    """A table from which batches may be left out that hold none of these calls, sorted numbers by
    process.
    """
    own = access_of(run).near
    return run.table(table) if own is None else own(table, calls)


def release(run: Run, table: str) -> None:
    """Gives back memory in which a table lies mapped from its files, where it does: its columns are
    read again when looked at again.
    """
    own = access_of(run).release
    if own is not None:
        own(table)


def records_at(run: Run, table: str, rows: Sequence[int]) -> list[Any]:
    """Records of a table by their number among the rows of arrow_columns, in the order asked
    for.
    """
    own = access_of(run).records_at
    if own is not None:
        return own(table, rows)
    every = list(records(run, table))
    return [every[row] for row in rows]


def records(run: Run, table: str) -> Iterator[Any]:
    """Every row of a table as its record, in the order of the table."""
    in_memory = access_of(run).rows
    yield from decode_stream(table, run.table(table)) if in_memory is None else in_memory(table)


def record_of(table: str, row: dict[str, Any]) -> Any:
    """A row of sql() with all columns of a table as its record."""
    return _tensor(row) if table == "tensors" else RECORDS[table](**row)


def _tensor(row: dict[str, Any]) -> Tensor:
    value = row["value"]
    row = {name: tuple(cell) if isinstance(cell, list) else cell for name, cell in row.items()}
    return Tensor(
        **{
            **row,
            "value": None
            if value is None or value["shard"] is None
            else ValueRef(value["shard"], value["key"]),
        }
    )


def _where(selection: Selection) -> tuple[str, list[Any]]:
    clauses: list[str] = []
    parameters: list[Any] = []
    for column, ranges in (("step", selection.steps), ("rank", selection.ranks)):
        if ranges is not None:
            clauses.append("(" + " OR ".join([f"{column} BETWEEN ? AND ?"] * len(ranges)) + ")")
            parameters.extend(bound for pair in ranges for bound in pair)
    for column, words in (("phase", selection.phases), ("level", selection.levels)):
        if words is not None:
            clauses.append(f"{column} IN ({', '.join('?' * len(words))})")
            parameters.extend(words)
    return ("WHERE " + " AND ".join(clauses) if clauses else ""), parameters


def _unique(names: list[str]) -> list[str]:
    """Column names made different: a join selects "index" twice, a dict holds it once."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique


def _said(text: str) -> str:
    """A message of duckdb in the manner of ours: one line, without the name of its class and the
    statement that was given.
    """
    kind, _, reason = " ".join(re.split(r"\n\s*LINE \d+:", text)[0].split()).partition(" Error: ")
    reason = (
        (reason or kind)
        .replace("! Did you mean", "; did you mean")
        .replace("! Candidate bindings:", "; near it are")
    )
    reason = reason.replace(
        "file system operations are disabled by configuration",
        "a query reads the tables of its run and no files",
    )
    names = "; docs/schema.md names tables and columns" if kind in {"Binder", "Catalog"} else ""
    return reason[:1].lower() + reason[1:].rstrip("!") + names
