# SPDX-License-Identifier: Apache-2.0
"""Writes a run as plain files or in another tool's layout, with the list that brings back what such
files cannot hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opscope.arrays import Array
from opscope.formats.cann.writer import write_run as write_cann
from opscope.formats.manifest import Contents, write_manifest
from opscope.formats.parquet import NAME, PARTS, VERSION, Head, parquet_database
from opscope.formats.writing.array_files import ArrayFiles, SafetensorsFiles
from opscope.formats.writing.engine import Wanted, Writer, Written, rows_of, write_rows
from opscope.formats.writing.mindspore_files import MindSporeFiles, kernel_level, plan_graphs
from opscope.formats.writing.msprobe_files import EntryNames, MsprobeFiles
from opscope.run.memory import MemoryRun
from opscope.run.query import calls as calls_of
from opscope.run.query import records, tensors_of
from opscope.run.schema import TABLES, Call, Stack, Tensor, ValueRef

if TYPE_CHECKING:
    from collections.abc import Callable

    import duckdb

    from opscope.formats.writing.job import Job
    from opscope.run.protocol import Run


def write_run(run: Run, job: Job, done: Callable[[int], None]) -> Written:
    """Write an open run into job.out; done is told how many tensors there are so far. UsageError
    for what a kind cannot hold.
    """
    job.out.mkdir(parents=True, exist_ok=True)
    if job.kind == "parquet":
        return write_parquet(run, job)
    stacks = {(stack.process, stack.stack): stack for stack in records(run, "stacks")}
    if job.kind == "mindspore":
        return _to_mindspore(run, job, stacks, done)
    if job.kind == "msprobe":
        return _to_msprobe(run, job, stacks, done)
    if job.kind == "cann":
        outcome = write_cann(run, rows_of(run, job.wanted), job.out, jobs=job.threads, done=done)
        return Written(tensors=outcome.tensors, failures=outcome.failures)
    writer: Writer = (
        SafetensorsFiles(job.out)
        if job.kind == "safetensors"
        else ArrayFiles(job.out, job.kind, root=Path(run.info.path))
    )
    written = write_rows(run, job.wanted, writer, jobs=job.threads, done=done)
    _list(run, job, written, stacks)
    return written


def _list(run: Run, job: Job, written: Written, stacks: dict[tuple[int, int], Stack]) -> None:
    """Lay opscope.jsonl beside the files."""
    calls = tuple(call for call, _ in written.calls)
    tensors = tuple(row for _, rows in written.calls for row in rows)
    used = {(call.process, call.stack) for call in calls}
    contents = Contents(
        info=run.info,
        processes=run.processes,
        calls=calls,
        stacks=tuple(stack for key, stack in stacks.items() if key in used),
        judgements=tuple(records(run, "judgements")),
        tensors=tensors,
    )
    write_manifest(job.out, contents)


def _rows(run: Run, job: Job) -> list[tuple[Call, list[Tensor]]]:
    """Calls and rows before anything is written, for planning."""
    return [(call, list(tensors_of(run, call))) for call in calls_of(run, job.wanted.selection)]


def _to_mindspore(
    run: Run, job: Job, stacks: dict[tuple[int, int], Stack], done: Callable[[int], None]
) -> Written:
    planned = _rows(run, job)
    level = kernel_level(call.level for call, _ in planned)
    graphs, texts = plan_graphs(planned, stacks, level)
    about = run.info.config.get("config", {}) if run.info.format == "mindspore" else {}
    common = (
        run.info.config.get("data_dump", {}).get("common_dump_settings", {})
        if run.info.format == "mindspore"
        else {}
    )
    net = common.get("net_name") if isinstance(common, dict) else None
    named = job.net or (net if isinstance(net, str) and net.isidentifier() else "Net")
    writer = MindSporeFiles(job.out, net=named, level=level, graphs=graphs)
    both = _WithOthers(writer, ArrayFiles(job.out / "others", "npy"), level)
    written = write_rows(run, job.wanted, both, jobs=job.threads, done=done)
    writer.finish(written.calls, texts, about if isinstance(about, dict) else {})
    _list(run, job, written, stacks)
    return written


class _WithOthers:
    """Kernels go to MindSpore's layout, tensors of the other levels to files beside it."""

    def __init__(self, kernels: MindSporeFiles, others: ArrayFiles, level: str | None) -> None:
        self._kernels, self._others, self._level = kernels, others, level

    def write(self, call: Call, tensor: Tensor, values: Array) -> ValueRef | None:
        """One tensor."""
        if call.level == self._level:
            return self._kernels.write(call, tensor, values)
        written = self._others.write(call, tensor, values)
        return msgspec.structs.replace(written, shard=f"others/{written.shard}")

    def close(self) -> None:
        """Finish both."""
        self._kernels.close()
        self._others.close()


def _to_msprobe(
    run: Run, job: Job, stacks: dict[tuple[int, int], Stack], done: Callable[[int], None]
) -> Written:
    names = EntryNames()
    for call in calls_of(run, job.wanted.selection):
        names.of(call)
    writer = MsprobeFiles(job.out, names)
    written = write_rows(run, job.wanted, writer, jobs=job.threads, done=done)
    writer.finish(written.calls, stacks)
    _list(run, job, written, stacks)
    return written


# Writes the tables of a run as Parquet (formats/parquet.py), compressed with zstd, with
# statistics of row groups: a query of one rank, step or range of values reads little else.

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

    Raises FormatError for a table that cannot be read, UnavailableError without duckdb.
    """
    chosen = run if job.wanted == Wanted() else _chosen(run, job.wanted)
    path, failing = run.info.path, "cannot be written as Parquet"
    with parquet_database(path, failing, memory_limit=_MEMORY) as connection:
        connection.execute("SET threads = 1")
        for table in TABLES:
            connection.register(table, chosen.table(table))
        for table in TABLES:
            _write_table(connection, table, job.out)
        (tensors,) = connection.execute("SELECT count(*) FROM tensors").fetchone() or (0,)
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
