# SPDX-License-Identifier: Apache-2.0
"""Reading a native run directory, of one process or many, finished, torn or still being written."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from nanoarrow.ipc import InputStream

from opscope.arrays import Array, Ints
from opscope.errors import FormatError, MissingValueError, UsageError
from opscope.run.access import Access
from opscope.run.arrow import (
    Batch,
    Column,
    column_array,
    encode_rows,
    owned,
    struct_columns,
    table_schema,
    taken,
)
from opscope.run.keys import by_process
from opscope.run.protocol import Coverage, RunInfo
from opscope.run.relation import Relations
from opscope.run.schema import TABLES, Call, Process, Tensor
from opscope.run.selection import Selection, parse_ranges
from opscope.run.store.blackbox import BlackBoxContents
from opscope.run.store.ipc import END_OF_STREAM
from opscope.run.store.layout import (
    PROCESSES,
    RUN_FILE,
    RunFile,
    process_directories,
    read_run_file,
)
from opscope.run.store.operator_file import OperatorTable, read_operators
from opscope.run.store.process_reader import ProcessReader
from opscope.run.store.shard_reader import Files
from opscope.run.store.stored_table import StoredTable
from opscope.run.store.tables import batch_bytes, schema_bytes

if TYPE_CHECKING:
    from opscope.run.protocol import ArrowStream, Run


RECORDED = Coverage(
    versions=True,
    inputs=True,
    phases=True,
    statistics=True,
    integers=True,
    samples=True,
    seeds=True,
)

_NO_CALLS = np.empty(0, dtype=np.int64)


class _Columns(Batch):
    """Columns of one batch, or of some of its rows, decoded when they are looked up: who screens
    numbers does not pay for texts.
    """

    def __init__(
        self,
        table: StoredTable,
        number: int,
        names: Sequence[str],
        constants: dict[str, int],
        rows: Ints | None = None,
    ) -> None:
        self._table = table
        self._number = number
        self._names = tuple(names)
        self._constants = constants
        self._rows = rows
        self._known: dict[str, Array] = {}

    def at(self, rows: Ints) -> _Columns:
        """These rows, by their number here."""
        within = rows if self._rows is None else self._rows[rows]
        part = _Columns(self._table, self._number, self._names, self._constants, within)
        part._known = {name: column[rows] for name, column in self._known.items()}
        return part

    def __getitem__(self, name: str) -> Array:
        column = self._known.get(name)
        if column is None:
            if name not in self._names:
                raise KeyError(name)
            constant = self._constants.get(name)
            if constant is None:
                stored = self._table.column(self._number, name)
                column = column_array(stored if self._rows is None else taken(stored, self._rows))
            else:
                rows = self._table.rows(self._number) if self._rows is None else len(self._rows)
                column = np.full(rows, constant, dtype=np.int32)
            self._known[name] = column
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def read_by_workers(run: Run) -> NativeRun:
    """A run whose processes workers read where they lie; UsageError for one that is not opscope's
    own.
    """
    if isinstance(run, NativeRun):
        return run
    raise UsageError(
        f"{run.info.path}: --executor reads opscope's own runs, this is of {run.info.format}"
    )


class NativeRun(Relations):
    """A run in its own directory.

    Opening reads run.json alone; FormatError when the directory is missing, empty or not a run,
    NewerFormatError when a newer opscope wrote it. Torn tables are read up to the last whole batch
    and named in problems.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        directories: Sequence[str] | None = None,
        *,
        files: Files = Files(),  # noqa: B008 - never written
    ) -> None:
        """A whole run, or its processes of these directories, by name and in this order."""
        self._directory = Path(path)
        self._files = files
        self._part = None if directories is None else tuple(directories)
        self._file = _open_run_file(self._directory)
        self.info = _info(self._directory, self._file)
        self.access = Access(
            calls=self.ordered_calls,
            tensors_of=self.tensors_of,
            columns=self.columns,
            arrow_columns=self.arrow_columns,
            release=self.release,
            records_at=self.records_at,
            blackbox=self.blackbox,
            operators=self.operators,
        )

    @cached_property
    def _processes(self) -> tuple[ProcessReader, ...]:
        entries = (
            process_directories(self._directory)
            if self._part is None
            else [self._directory / PROCESSES / name for name in self._part]
        )
        readers = [
            ProcessReader(entry, number, self._files) for number, entry in enumerate(entries)
        ]
        numbers = [reader.process.process for reader in readers]
        # directories gathered from several hosts: number them anew
        if len(set(numbers)) < len(numbers):
            for number, reader in enumerate(readers):
                reader.process = msgspec.structs.replace(reader.process, process=number)
        return tuple(readers)

    @property
    def processes(self) -> tuple[Process, ...]:
        """The processes, as their process.json say."""
        return tuple(reader.process for reader in self._processes)

    @cached_property
    def directories_by_rank(self) -> Mapping[int, Sequence[str]]:
        """Names of the directories of each rank. A launcher knows of no world, and is no rank where
        others are.
        """
        ranks = [process for process in self.processes if process.world is not None]
        directories: dict[int, list[str]] = defaultdict(list)
        for process in ranks or self.processes:
            directories[process.rank].append(process.directory)
        return directories

    def operators(self) -> OperatorTable:
        """What the programs told of operators that the catalogue does not know."""
        return read_operators(reader.directory for reader in self._processes)

    @property
    def problems(self) -> tuple[str, ...]:
        """One line for each thing that is torn, damaged or missing; the first access opens every
        table.

        Damage inside a batch is found when the batch is read; ask again after reading.
        """
        lines = [line for reader in self._checked_processes for line in reader.problems]
        return (*lines, *(self.gaps if self._part is None else ()))

    @property
    def gaps(self) -> tuple[str, ...]:
        """Of problems those that no table shows: processes that are not there at all."""
        nobody = [] if self._processes else [f"{self._directory}: no process recorded into it"]
        return (*nobody, *self._missing_ranks())

    @cached_property
    def _checked_processes(self) -> tuple[ProcessReader, ...]:
        for reader in self._processes:
            reader.check()
        return self._processes

    def _missing_ranks(self) -> Iterator[str]:
        world = max((process.world or 0 for process in self.processes), default=0)
        ranks = self._file.config.get("ranks")
        try:
            wanted = (
                parse_ranges(ranks, what="ranks") if isinstance(ranks, str) else ((0, world - 1),)
            )
        except UsageError:
            wanted = ((0, world - 1),)
        # a launcher knows of no world, and is called rank 0 for want of another number
        present = {process.rank for process in self.processes if process.world is not None}
        missing = [
            rank
            for rank in range(min(world, 1 << 20))
            if rank not in present and any(a <= rank <= b for a, b in wanted)
        ]
        if missing:
            shown = ", ".join(str(rank) for rank in missing[:8]) + (
                ", …" if len(missing) > 8 else ""
            )
            yield f"{self._directory}: no records of rank {shown} of {world}"

    def table(self, name: str) -> ArrowStream:
        """Table "calls", "tensors", "stacks" or "judgements" of all processes."""
        return _Table(self, name)

    def messages(self, table: str) -> Iterator[bytes | bytearray | memoryview]:
        """The table as the bytes of one Arrow IPC stream, read as it is consumed."""
        yield schema_bytes(table_schema(table))
        for reader in self._processes:
            yield from reader.tables[table].messages(reader.constants)
        unfinished = self.unfinished if table == "calls" else ()
        if unfinished:
            yield batch_bytes(encode_rows("calls", unfinished))
        yield END_OF_STREAM

    @property
    def unfinished(self) -> tuple[Call, ...]:
        """Calls that were open when their process died; rows of table calls, error "unfinished"."""
        return tuple(call for reader in self._processes for call in reader.unfinished)

    def blackbox(self, process: int) -> BlackBoxContents | None:
        """What the black box of a process holds, recent calls included."""
        reader = self._by_number.get(process)
        return None if reader is None else reader.blackbox

    def columns(
        self, table: str, names: Sequence[str], near: Ints | None = None
    ) -> Iterator[Mapping[str, Array]]:
        """Some columns of a table, a batch at a time; a column's bytes are read when it is first
        looked up. See query.columns.
        """
        calls = None if near is None else by_process(near)
        for reader in self._processes:
            stored, constants = reader.tables[table], reader.constants
            wanted = None if calls is None else calls.get(reader.process.process, _NO_CALLS)
            for number in stored.usable(names, wanted):
                yield _Columns(stored, number, names, constants)
                stored.release(number)
        if table == "calls" and self.unfinished:
            yield _unfinished_columns(self.unfinished, names)

    def arrow_columns(self, table: str) -> Iterator[Mapping[str, Column]]:
        """All columns of a table, a batch at a time, texts as bytes in the mapped files. See
        query.arrow_columns.
        """
        names = list(TABLES[table])
        for reader in self._processes:
            stored = reader.tables[table]
            for number in range(len(stored)):
                batch_columns = stored.read(number, names, reader.constants)
                if batch_columns is not None:
                    yield batch_columns
        if table == "calls" and self.unfinished:
            batch = encode_rows(table, self.unfinished)
            yield dict(zip(names, map(owned, struct_columns(TABLES[table], batch)), strict=True))

    def release(self, table: str) -> None:
        """Gives back the memory in which a table lies mapped; views of it stay as they are. See
        query.release.
        """
        for reader in self._processes:
            reader.tables[table].release()

    def records_at(self, table: str, rows: Sequence[int]) -> list[Any]:
        """Records by their number among the rows of arrow_columns; reads only the batches that hold
        one.
        """
        wanted = np.unique(np.asarray(rows, dtype=np.int64))
        records: dict[int, Any] = {}
        first = 0
        for reader in self._processes:
            stored = reader.tables[table]
            for number in stored.sound():
                last = first + stored.rows(number)
                here = wanted[np.searchsorted(wanted, first) : np.searchsorted(wanted, last)]
                if len(here):
                    records.update(
                        zip(
                            here.tolist(),
                            reader.records_at(table, number, (here - first).tolist()),
                            strict=True,
                        )
                    )
                first = last
        if table == "calls":
            records.update(
                {
                    row: self.unfinished[row - first]
                    for row in wanted[np.searchsorted(wanted, first) :].tolist()
                }
            )
        return [records[int(row)] for row in rows]

    def ordered_calls(self, selection: Selection) -> Iterator[Call]:
        """The calls of wanted steps and ranks by rank, process, step and index; memory holds only
        batches that overlap.
        """
        for reader in sorted(
            self._processes, key=lambda reader: (reader.process.rank, reader.process.process)
        ):
            if selection.wants_rank(reader.process.rank):
                yield from (
                    call
                    for call in reader.calls(selection.wants_step)
                    if selection.wants_call(call)
                )

    def extremes(self) -> list[dict[str, Any]]:
        """What steps that are no longer kept shrank to: one row for each range of steps, operator,
        module and phase.
        """
        return [row for reader in self._processes for row in reader.extremes()]

    def tensors_of(self, process: int, index: int) -> tuple[Tensor, ...]:
        """Tensor rows of one call, in the order they were written."""
        reader = self._by_number.get(process)
        return () if reader is None else reader.tensors_of(index)

    def value(self, tensor: Tensor) -> Array:
        """Elements of a tensor row, a read-only view of the file; raw bytes for a type NumPy does
        not have.

        MissingValueError when they were not kept or are gone with old steps, FormatError when the
        shard is damaged.
        """
        reader = self._by_number.get(tensor.process)
        if tensor.value is None or reader is None:
            raise MissingValueError(
                f"values of {tensor.io} {tensor.slot} of call #{tensor.index} were not kept"
            )
        return reader.value(tensor, tensor.value)

    @cached_property
    def _by_number(self) -> dict[int, ProcessReader]:
        return {reader.process.process: reader for reader in self._processes}


class _Table:
    """One table of a run; each __arrow_c_stream__ reads the files again."""

    def __init__(self, run: NativeRun, name: str) -> None:
        if name not in TABLES:
            raise KeyError(name)
        self._run = run
        self._name = name

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return InputStream.from_readable(_Bytes(self._run.messages(self._name))).__arrow_c_stream__(
            requested_schema
        )


class _Bytes:
    """What nanoarrow reads from: pieces of bytes, one after the other."""

    def __init__(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        self._pieces = iter(pieces)
        self._piece = memoryview(b"")

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        done = 0
        while done < len(target):
            if not len(self._piece):
                following = next(self._pieces, None)
                if following is None:
                    break
                self._piece = memoryview(following)
                continue
            count = min(len(target) - done, len(self._piece))
            target[done : done + count] = self._piece[:count]
            self._piece = self._piece[count:]
            done += count
        return done


def _unfinished_columns(calls: tuple[Call, ...], names: Sequence[str]) -> dict[str, Array]:
    batch = encode_rows("calls", calls)
    of_batch = zip(TABLES["calls"], struct_columns(TABLES["calls"], batch), strict=True)
    columns = {name: owned(column) for name, column in of_batch if name in names}
    return {name: column_array(columns[name]) for name in names}


def _open_run_file(directory: Path) -> RunFile:
    if not directory.is_dir():
        reason = "no such run" if not directory.exists() else "a file, not the directory of a run"
        raise FormatError(directory, reason)
    if not (directory / RUN_FILE).exists():
        empty = next(directory.iterdir(), None) is None
        raise FormatError(
            directory,
            "an empty directory" if empty else f"not an opscope run: it has no {RUN_FILE}",
        )
    return read_run_file(directory)


def _info(directory: Path, file: RunFile) -> RunInfo:
    return RunInfo(
        path=str(directory),
        format="opscope",
        version=file.version or None,
        command=file.command,
        config=file.config,
        packages=file.packages,
        environment=file.environment,
        seed=file.seed,
        deterministic=file.deterministic,
        overhead=file.overhead,
        hidden_calls=file.hidden_calls,
        sealed=file.sealed,
        coverage=_coverage(file.config),
    )


def _coverage(config: Mapping[str, Any]) -> Coverage:
    """What a run says, but for what it was told to leave out."""
    phases, levels = (str(config.get(word, "")).split(",") for word in ("phases", "levels"))
    chosen = any(config.get(word) for word in ("ops", "skip", "set_dump"))
    reads = config.get("io") != "output"
    return msgspec.structs.replace(
        RECORDED,
        inputs=reads,
        reads=reads,
        writes=config.get("io") != "input",
        every=not chosen and levels != ["module"] and bool({"", "forward"} & {*phases}),
        modules=bool({"", "module"} & {*levels}),
        passes=phases == [""],
        steps=not config.get("steps"),
    )
