# SPDX-License-Identifier: Apache-2.0
"""The tables of a run as Parquet, for any lakehouse: what `opscope convert --type parquet` writes.

    DIR/opscope-parquet.json                    {version, info, processes}
    DIR/calls/rank=0/step=3/data_0.parquet      the columns of docs/schema.md but rank and step,
    DIR/tensors/rank=0/step=3/data_0.parquet    and `row`, the place in the table (tensors: of their
    DIR/stacks.parquet, DIR/judgements.parquet  call's rank and step)

Values of tensors are not in it. Files of other names are not read.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import FormatError, MissingValueError, NewerFormatError, UnavailableError
from opscope.formats.bounded import read_bounded
from opscope.formats.folders import file_names, folder_names
from opscope.formats.registry import Format
from opscope.run.access import Access
from opscope.run.keys import indices_of
from opscope.run.protocol import RunInfo
from opscope.run.relation import Relations
from opscope.run.schema import TABLES, Process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import duckdb

    from opscope.arrays import Array, Ints
    from opscope.run.schema import Call, Tensor
    from opscope.run.selection import Selection

NAME = "opscope-parquet.json"
VERSION = 1
PARTS = ("calls", "tensors")  # tables in parts, a folder for each rank and step
_LIMIT = 256 << 20  # bytes of the list
_MOST_FILES = 1 << 20
_PART = re.compile(r"(?:rank|step)=-?\d{1,18}")
_FILE = re.compile(r"data_\d{1,9}\.parquet")
_OPTIONS = "hive_partitioning = false, filename = true"
# Folders above the run may have such names, too: the last two count.
_OF_FOLDERS = {
    name: f"regexp_extract(filename, 'rank=([^/]+)/step=([^/]+)/[^/]+$', {group})"
    for group, name in ((1, "rank"), (2, "step"))
}
_SQL = {
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint64": "UBIGINT",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
    "list<int64>": "BIGINT[]",
    "list<float32>": "FLOAT[]",
    "list<string>": "VARCHAR[]",
    "struct<shard:string,key:string>": 'STRUCT("shard" VARCHAR, "key" VARCHAR)',
}


class Head(msgspec.Struct, frozen=True):
    """What no table holds."""

    version: int
    info: RunInfo
    processes: tuple[Process, ...] = ()


def detect(path: Path) -> bool:
    """Whether this is a folder that such a list lies in."""
    return (path / NAME).is_file()


class ParquetRun(Relations):
    """A run of which each table is read from its files whenever it is asked for.

    Opening reads the list alone. Raises FormatError for a list that is none, NewerFormatError for
    one of a newer opscope.
    """

    def __init__(self, path: Path) -> None:
        head = _head(path / NAME)
        self.info = msgspec.structs.replace(head.info, path=str(path))
        self.processes = head.processes
        self._files = {table: _files(path, table) for table in TABLES}
        self.problems = tuple(
            f"{path}: has no file of table {table}"
            for table in PARTS
            if not self._files[table] and any(process.rows.get(table) for process in self.processes)
        )
        self.access = Access(calls=self.ordered_calls, columns=self.columns)

    def ordered_calls(self, selection: Selection) -> Iterator[Call]:
        """The calls that are meant, by rank, process, step and index, sorted on disk where they are
        more than memory holds.
        """
        from opscope.run.arrow import decode_stream

        order = 'rank, process, step, "index"'
        stream = ParquetTable("calls", self._files["calls"], order=order)
        yield from filter(selection.wants_call, decode_stream("calls", stream))

    def columns(
        self, table: str, names: Sequence[str], near: Ints | None = None
    ) -> Iterator[Mapping[str, Array]]:
        """Some columns of a table, a batch at a time, of the calls between the first and the last
        of these alone. See query.columns.
        """
        from opscope.run.arrow import stream_columns

        between = None
        if near is not None:
            if not len(near):
                return
            indices = indices_of(near)
            between = int(indices.min()), int(indices.max())
        stream = ParquetTable(table, self._files[table], between=between)
        yield from stream_columns(table, stream, names)

    def table(self, name: str) -> ParquetTable:
        """Table "calls", "tensors", "stacks" or "judgements"."""
        return ParquetTable(name, self._files[name])

    def value(self, tensor: Tensor) -> Array:
        """Nothing: MissingValueError."""
        raise MissingValueError(
            f"values of {tensor.io} {tensor.slot} of call #{tensor.index} are not in "
            f"{self.info.path}, which holds tables alone; ask the run that it was made of"
        )


class ParquetTable:
    """One table as an Arrow stream that can be opened any number of times; between: the least and
    the largest index of its calls; order: columns of calls, in SQL.
    """

    def __init__(
        self,
        name: str,
        files: Sequence[str],
        *,
        between: tuple[int, int] | None = None,
        order: str = '"row"',
    ) -> None:
        self._name, self._files, self._between, self._order = name, files, between, order

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        from opscope.run.arrow import RowsTable

        if not self._files:
            return RowsTable(self._name, ()).__arrow_c_stream__(requested_schema)
        where, parameters = "", list[Any]()
        if self._between is not None:
            where, parameters = ' WHERE "index" BETWEEN ? AND ?', list(self._between)
        order = f" ORDER BY {self._order}" if self._name in PARTS else ""
        folder = Path(self._files[0]).parent
        with parquet_database(folder, f"table {self._name} cannot be read") as connection:
            rows = f"FROM read_parquet(?, {_OPTIONS})"
            there = connection.execute(
                f"DESCRIBE SELECT * {rows}", [list(self._files[:1])]
            ).fetchall()
            columns = self._columns({name for name, *_ in there})
            query = f"SELECT {columns} {rows}{where}{order}"
            relation = connection.sql(query, params=[list(self._files), *parameters])
            return relation.__arrow_c_stream__(requested_schema)

    def _columns(self, there: set[str]) -> str:
        """The columns of the table in SQL; null those that an older opscope did not write."""
        named = _OF_FOLDERS if self._name == "calls" else {}
        return ", ".join(
            f"CAST({named.get(name) or (quoted if name in there else 'NULL')} AS {_SQL[kind]}) "
            f"AS {quoted}"
            for name, kind in TABLES[self._name].items()
            for quoted in [f'"{name}"']
        )


@contextmanager
def parquet_database(
    path: Path | str, failing: str, *, memory_limit: str | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory, which reads and writes Parquet; a stream of it holds it open.

    memory_limit ("256MB") bounds what it keeps in memory; larger sorts and joins go to a temporary
    directory that is removed at the end. Raises UnavailableError without duckdb, FormatError, as
    failing of path, for what duckdb refuses.
    """
    import tempfile
    import uuid

    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise UnavailableError("Parquet needs duckdb: pip install 'opscope[parquet]'") from error
    connection = duckdb.connect(":memory:")
    try:
        # The database makes this folder when it first needs it, and removes it when it closes.
        spill = Path(tempfile.gettempdir(), f"opscope-{uuid.uuid4().hex}")
        connection.execute("SET temp_directory = ?", [str(spill)])
        if memory_limit is not None:
            connection.execute("SET memory_limit = ?", [memory_limit])
        ((bar,),) = connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()
        # stdout is the document's; a notebook without ipywidgets refuses to be told of a bar
        if bar:
            connection.execute("SET enable_progress_bar = false")
        yield connection
    except RuntimeError as error:  # stands in the place of Ctrl-C, which duckdb takes
        if str(error) != "Query interrupted":
            raise
        raise KeyboardInterrupt from None
    except duckdb.Error as error:
        reason = " ".join(str(error).split())[:300]
        raise FormatError(path, f"{failing}: {reason}") from error


def _head(path: Path) -> Head:
    try:
        head = msgspec.json.decode(read_bounded(path, limit=_LIMIT, what="a list"), type=Head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(path, f"is no list of a run in Parquet: {error}") from error
    if head.version > VERSION:
        raise NewerFormatError(
            path, f"is version {head.version}; this opscope reads {VERSION}: install a newer one"
        )
    return head


def _files(path: Path, table: str) -> list[str]:
    """Files of a table."""
    if table not in PARTS:
        single = path / f"{table}.parquet"
        return [str(single)] if single.is_file() else []
    paths: list[str] = []
    for rank in filter(_PART.fullmatch, folder_names(path / table)):
        for step in filter(_PART.fullmatch, folder_names(path / table / rank)):
            folder = path / table / rank / step
            names = filter(_FILE.fullmatch, file_names(folder))
            paths.extend(str(folder / name) for name in names)
            if len(paths) > _MOST_FILES:
                raise FormatError(path, f"holds more than {_MOST_FILES} files of {table}")
    return paths


FORMAT = Format("parquet", detect, ParquetRun)
