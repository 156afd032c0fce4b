# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of a run as Parquet (formats/parquet.py), compressed with zstd, with statistics
of row groups: a query of one rank, step or range of values reads little else.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opscope.errors import FormatError
from opscope.formats.parquet import NAME, PARTS, VERSION, Head
from opscope.formats.writing.engine import Wanted, Written, rows_of
from opscope.run.memory import MemoryRun
from opscope.run.query import database, records
from opscope.run.schema import TABLES

if TYPE_CHECKING:
    import duckdb

    from opscope.formats.writing.job import Job
    from opscope.run.protocol import Run

_MEMORY = "1GB"  # more is sorted on disk
# One thread numbers the rows as they come; what writes the parts does not keep their order.
_NUMBERED = {
    "calls": 'SELECT * EXCLUDE (rank, step), row_number() OVER () AS "row", rank, step FROM calls',
    "tensors": """
        SELECT t.*, coalesce(c.rank, 0) AS rank, coalesce(c.step, -1) AS step FROM
            (SELECT * REPLACE (NULL::STRUCT("shard" VARCHAR, "key" VARCHAR) AS value),
                row_number() OVER () AS "row" FROM tensors) t
        LEFT JOIN (SELECT process, "index", rank, step FROM calls) c USING (process, "index")
    """,
}


def write_parquet(run: Run, job: Job) -> Written:
    """Write the tables of an open run into job.out, the list last: a folder without it is no run.

    Raises FormatError for a table that cannot be read.
    """
    import duckdb

    chosen = run if job.wanted == Wanted() else _chosen(run, job.wanted)
    with database(memory_limit=_MEMORY) as connection:
        connection.execute("SET threads = 1")
        for table in TABLES:
            connection.register(table, chosen.table(table))
        try:
            for table in TABLES:
                _write_table(connection, table, job.out)
            (tensors,) = connection.execute("SELECT count(*) FROM tensors").fetchone() or (0,)
        except duckdb.Error as error:
            raise FormatError(run.info.path, f"cannot be written as Parquet: {error}") from error
    info = msgspec.structs.replace(
        run.info, coverage=msgspec.structs.replace(run.info.coverage, samples=False)
    )
    head = Head(VERSION, info, tuple(run.processes))
    (job.out / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(head), indent=1))
    return Written(tensors=tensors)


def _write_table(connection: duckdb.DuckDBPyConnection, table: str, out: Path) -> None:
    parted = table in PARTS
    source = f"({_NUMBERED[table]})" if parted else table
    target = str(out / table if parted else out / f"{table}.parquet").replace("'", "''")
    options = "FORMAT parquet, COMPRESSION zstd" + (", PARTITION_BY (rank, step)" if parted else "")
    connection.execute(f"COPY (SELECT * FROM {source}) TO '{target}' ({options})")  # noqa: S608 - fixed text but for the escaped path


def _chosen(run: Run, wanted: Wanted) -> MemoryRun:
    """The calls that are meant, with their rows, as a run of its own."""
    chosen = list(rows_of(run, wanted))
    keys = {(call.process, call.index) for call, _ in chosen}
    used = {(call.process, call.stack) for call, _ in chosen}
    return MemoryRun(
        run.info,
        run.processes,
        [call for call, _ in chosen],
        [row for _, rows in chosen for row in rows],
        [stack for stack in records(run, "stacks") if (stack.process, stack.stack) in used],
        [one for one in records(run, "judgements") if (one.process, one.index) in keys],
    )
