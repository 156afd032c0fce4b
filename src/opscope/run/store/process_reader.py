# SPDX-License-Identifier: Apache-2.0
"""Reading one process directory: its tables segment by segment, its values, and what its black box
still knows.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError
from opscope.run.arrow import Column, column_values, rows_of_columns, sliced
from opscope.run.schema import TABLES, Call, Process, Tensor, ValueRef
from opscope.run.store.blackbox import BlackBoxCall, BlackBoxContents, read_blackbox
from opscope.run.store.ipc import IpcFile
from opscope.run.store.journal import NAME as JOURNAL
from opscope.run.store.journal import Entry, read_journals, read_value
from opscope.run.store.layout import BLACKBOX, EXTREMES, FORMULAS, read_process
from opscope.run.store.retention import EXTREMES_TYPES
from opscope.run.store.shard_reader import Files, ShardReader
from opscope.run.store.stored_table import StoredTable

UNFINISHED = "unfinished"
_APART = 16  # rows between two wanted ones that cost more to make than a slice of every column


class ProcessReader:
    """One process of a run. problems collects a line for each thing that is torn, damaged or
    missing.
    """

    def __init__(self, directory: Path, number: int, files: Files = Files()) -> None:  # noqa: B008 - never written
        self.directory = directory
        self.problems: list[str] = []
        self.values = ShardReader(directory, files.shard)
        self.tables = {
            table: StoredTable(directory, table, self.problems, files.arrive) for table in TABLES
        }
        self._known = True
        try:
            self.process = read_process(directory, number)
        except FormatError as error:
            self.problems.append(str(error))
            self._known = False
            self.process = Process(process=number, directory=directory.name)
        self._grouped = lru_cache(maxsize=4)(self._group)

    @property
    def constants(self) -> dict[str, int]:
        """Columns that hold one number in all rows of this process: known late, or renumbered on
        reading.
        """
        return {"process": self.process.process, "rank": self.process.rank}

    def calls(self, wants_step: Callable[[int], bool]) -> Iterator[Call]:
        """Calls of the wanted steps by step and index, batches that overlap merged; the rest of the
        table stays on disk.
        """
        waiting: list[Call] = [call for call in self.unfinished if wants_step(call.step)]
        spans = sorted(self._wanted_batches(wants_step))
        bounds = [*(first for first, _ in spans[1:]), None]
        for (_, number), following in zip(spans, bounds, strict=False):
            waiting.extend(call for call in self._rows("calls", number) if wants_step(call.step))
            waiting.sort(key=_place)
            ready = (
                len(waiting) if following is None else bisect_left(waiting, following, key=_place)
            )
            yield from waiting[:ready]
            del waiting[:ready]
        yield from sorted(waiting, key=_place)

    def _wanted_batches(
        self, wants_step: Callable[[int], bool]
    ) -> Iterator[tuple[tuple[int, int], int]]:
        """Batches of calls that hold a wanted step, each behind the place of its first call."""
        for number in range(len(self.tables["calls"])):
            columns = self.tables["calls"].read(number, ("step", "index"))
            if columns is None:
                continue
            steps, indices = columns["step"].buffers[0], columns["index"].buffers[0]
            first = steps.min(initial=np.iinfo(steps.dtype).max)
            first_call = (int(first), int(indices[steps == first].min())) if len(steps) else None
            wanted = any(wants_step(step) for step in np.unique(steps).tolist())
            self.tables["calls"].release(number)
            if first_call is not None and wanted:
                yield first_call, number

    def _rows(self, table: str, number: int) -> Iterator[Any]:
        """Records of a batch, with the constants of the process."""
        columns = self.tables[table].read(number, list(TABLES[table]))
        if columns is not None:
            yield from self._records(table, list(columns.values()))
            self.tables[table].release(
                number
            )  # who reads a table on and on shall not hold all of it

    def records_at(self, table: str, number: int, places: Sequence[int]) -> list[Any]:
        """Records of a sound batch by their places in it, in this order."""
        columns = self.tables[table].read(number, list(TABLES[table])) or {}
        records: dict[int, Any] = {}
        for first, last in _stretches(sorted(set(places))):
            part = self._records(
                table, [sliced(column, first, last - first + 1) for column in columns.values()]
            )
            records.update(zip(range(first, last + 1), part, strict=True))
        return [records[row] for row in places]

    def _records(self, table: str, columns: list[Column]) -> Iterator[Any]:
        constants = {name: value for name, value in self.constants.items() if name in TABLES[table]}
        for row in rows_of_columns(table, columns):
            same = all(getattr(row, name) == value for name, value in constants.items())
            yield row if same else msgspec.structs.replace(row, **constants)

    def tensors_of(self, index: int) -> tuple[Tensor, ...]:
        """Tensor rows of one call, in the order they were written."""
        rows: list[Tensor] = []
        for number, first, last in self._index_ranges:
            if first <= index <= last:
                rows.extend(self._grouped(number).get(index, ()))
        entry = self.journalled.get(index)
        return (
            tuple(rows)
            if entry is None
            else _with_journal(rows, entry, self.process.process, index)
        )

    @cached_property
    def _index_ranges(self) -> list[tuple[int, int, int]]:
        """Number, first and last call of every batch of tensors."""
        ranges = []
        for number in range(len(self.tables["tensors"])):
            columns = self.tables["tensors"].read(number, ("index",))
            if columns is not None and columns["index"].length:
                indices = columns["index"].buffers[0]
                ranges.append((number, int(indices.min()), int(indices.max())))
                self.tables["tensors"].release(number)
        return ranges

    def _group(self, number: int) -> dict[int, list[Tensor]]:
        grouped: dict[int, list[Tensor]] = {}
        for row in self._rows("tensors", number):
            grouped.setdefault(row.index, []).append(row)
        return grouped

    def extremes(self) -> Iterator[dict[str, Any]]:
        """Rows of extremes.arrow, if old steps were shrunk; a damaged file becomes a problem."""
        path = self.directory / EXTREMES
        if not path.exists():
            return
        try:
            file = IpcFile(path)
            for batch in file.batches:
                columns = [column_values(file.column(batch, name)) for name in EXTREMES_TYPES]
                for row in zip(*columns, strict=True):
                    yield {**dict(zip(EXTREMES_TYPES, row, strict=True)), **self.constants}
        except (FormatError, KeyError) as error:
            self.problems.append(f"{path}: not a table of extremes: {error}")

    @cached_property
    def running(self) -> bool:
        """Whether the process is still alive on this machine and records; `waited` is known once it
        has closed its files.
        """
        process = self.process
        if process.waited is not None:
            return False
        if process.exit_code is not None or process.signal is not None or process.pid is None:
            return False
        import socket

        return process.host == socket.gethostname() and _alive(process.pid, process.start)

    @cached_property
    def blackbox(self) -> BlackBoxContents | None:
        """What the black box holds, or None when there is none or it cannot be read."""
        return self._black_box(BLACKBOX)

    def _black_box(self, name: str) -> BlackBoxContents | None:
        path = self.directory / name
        if not path.exists():
            return None
        try:
            return read_blackbox(path)
        except FormatError as error:
            self.problems.append(str(error))
            return None

    @cached_property
    def journals(self) -> tuple[Entry, ...]:
        """Inputs of calls that did not return, written before they began."""
        try:
            return () if self.running else read_journals(self.directory)
        except FormatError as error:
            self.problems.append(str(error))
            return ()

    @cached_property
    def journalled(self) -> dict[int, Entry]:
        """Call -> its journal: the call of that number, else the innermost one that the thread left
        open.
        """
        if not self.journals or self.blackbox is None:
            return {}
        known = {call.index: call.op for call in self.blackbox.recent}
        journals = {}
        for entry in self.journals:
            open_calls = [
                call.index
                for call in self.blackbox.open
                if (call.thread, call.op) == (entry.thread, entry.head.op)
            ]
            index = (
                entry.index
                if known.get(entry.index) == entry.head.op
                else max(open_calls, default=None)
            )
            if index is not None:
                journals[index] = entry
        return journals

    def value(self, tensor: Tensor, ref: ValueRef) -> Array:
        """Elements of a tensor row, from a shard or from a journal."""
        entry = (
            next((entry for entry in self.journals if entry.name == ref.shard), None)
            if ref.shard.startswith(JOURNAL)
            else None
        )
        return (
            self.values.read(tensor, ref)
            if entry is None
            else read_value(self.directory, entry, tensor)
        )

    @cached_property
    def unfinished(self) -> tuple[Call, ...]:
        """Calls that were open when the process ended and whose rows were never written."""
        # of what came after the recording it knows nothing
        if self.running or self.blackbox is None or self.process.failed is not None:
            return ()
        steps = self.process.steps  # of an ended recording, that a call of the next step may end
        opened = [call for call in self.blackbox.open if steps is None or call.step < steps]
        if not opened:
            return self._formulas(self.blackbox)
        wanted = np.array([call.index for call in opened], dtype=np.int64)
        written: set[int] = set()
        for columns in self.tables["calls"].read_all(("index",)):
            indices = columns["index"].buffers[0]
            written.update(indices[np.isin(indices, wanted)].tolist())
        rows = [self._unfinished_row(call) for call in opened if call.index not in written]
        return (*rows, *self._formulas(self.blackbox))

    def _formulas(self, blackbox: BlackBoxContents) -> tuple[Call, ...]:
        """Gradient formulas that were running and had no call of an operator under way; they get
        the next free numbers.
        """
        formulas = self._black_box(FORMULAS)
        inside = {call.thread for call in blackbox.open if call.level == "operator"}
        running = (
            []
            if formulas is None
            else [call for call in formulas.open if call.thread not in inside]
        )
        first = max((call.index + 1 for call in blackbox.recent), default=0)
        return tuple(
            self._unfinished_row(msgspec.structs.replace(call, index=first + number))
            for number, call in enumerate(running)
        )

    def _unfinished_row(self, call: BlackBoxCall) -> Call:
        return Call(
            process=self.process.process,
            rank=self.process.rank,
            step=call.step,
            index=call.index,
            level=call.level,
            parent=call.parent,
            phase=call.phase,
            op=call.op,
            module=call.module,
            name=call.name,
            source=call.source,
            thread=_signed(call.thread),
            error=UNFINISHED,
            args=self.journalled[call.index].head.args if call.index in self.journalled else None,
        )

    def check(self) -> None:
        """Open everything, so that problems is complete."""
        for name, table in self.tables.items():
            table.expect(self.process.rows.get(name, 0))
        unfinished = self.unfinished
        process = self.process
        if process.missed is not None:
            self.problems.append(f"{self.directory}: {process.missed}")
        if process.failed is not None:
            why = f"recording ended before the process did: {process.failed}"
            self.problems.append(f"{self.directory}: {why}; what came later was not seen")
        elif self.running:
            self.problems.append(f"{self.directory}: process {process.pid} is still running")
        elif self._known and process.waited is None:
            # However it ended: its own last word is `waited`, and rows that were on their way are
            # gone without it.
            during = f" in {unfinished[-1].op}" if unfinished else ""
            how = (
                "killed, it became another program (exec), or the disk was full"
                if process.signal is None
                else f"killed by signal {process.signal}"
            )
            ended = f"the process ended{during} without closing its files: it was {how}"
            self.problems.append(
                f"{self.directory}: {ended}; what came after its last rows was not seen"
            )


def _with_journal(rows: list[Tensor], entry: Entry, process: int, index: int) -> tuple[Tensor, ...]:
    """The rows of a call with the values of its journal; the journal's own rows for a call that has
    none.
    """
    inputs = {row.slot: row for row in entry.rows(process, index)}
    if not rows:
        return tuple(inputs.values())
    return tuple(
        msgspec.structs.replace(row, value=inputs[row.slot].value)
        if row.io == "input" and row.value is None and row.slot in inputs
        else row
        for row in rows
    )


def _stretches(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of the stretches that rising places lie in, those near each other in one."""
    first = last = places[0]
    for row in places[1:]:
        if row - last > _APART:
            yield first, last
            first = row
        last = row
    yield first, last


def _place(call: Call) -> tuple[int, int]:
    """Where a call stands among those of its process."""
    return call.step, call.index


def _signed(thread: int) -> int:
    """A thread id as a column of int64 holds it."""
    return thread if thread < 1 << 63 else thread - (1 << 64)


def _alive(pid: int, recorded: float | None) -> bool:
    """Whether this process id is running and is not another, younger process."""
    if os.name == "nt":  # os.kill(pid, 0) is Ctrl-C there
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    try:
        state, *numbers = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
        ticks = int(numbers[18])
        started = (
            time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
        )
    except (OSError, ValueError, IndexError, AttributeError):
        return True  # no /proc: believe kill
    return state not in "ZX" and (recorded is None or started < recorded + 5)
