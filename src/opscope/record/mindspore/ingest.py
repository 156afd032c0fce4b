# SPDX-License-Identifier: Apache-2.0
"""Takes one folder of a MindSpore dump, an iteration of a graph, into the run: statistics of everything, values that are wanted.

The tensors are reduced as they land, and deleted when the dump is ours, so that the disk holds a few iterations at a time.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.errors import OpscopeError
from opscope.formats.mindspore.reader import open_dump
from opscope.record.mindspore.bits import is_origin, overflow_bits
from opscope.run.arrow import encode_rows
from opscope.run.query import calls as calls_of
from opscope.run.query import records, tensors_of
from opscope.run.schema import Call, Stack, Tensor, ValueRef

if TYPE_CHECKING:
    from opscope.record.config import RecordConfig
    from opscope.run.protocol import Run
    from opscope.run.store.writer import ProcessWriter


class _Numbers(msgspec.Struct):
    """The next free number of each kind: every folder is read by itself and counts from the beginning."""

    index: int = 0
    version: int = 0
    storage: int = 0
    stack: int = 0


class Ingestor:
    """Takes folders of one process into its tables, in the order they were finished."""

    def __init__(self, writer: ProcessWriter, config: RecordConfig) -> None:
        self.writer = writer
        self.problems: list[str] = []
        self._config = config
        self._numbers = _Numbers()
        self._sample = 0

    def take(self, folder: Path, *, owned: bool) -> None:
        """Read a folder, write its rows, and delete it when it is ours; what cannot be read is a line in problems."""
        try:
            run = open_dump(folder)
            self._write(run)
            self.problems.extend(run.problems)
        except (OpscopeError, OSError) as error:
            self.problems.append(str(error))
        if owned:
            shutil.rmtree(folder, ignore_errors=True)

    def end_step(self, step: int, *, finding: bool) -> None:
        """Say that all graphs of a step are in."""
        self.writer.end_step(step, finding=finding)

    def _write(self, run: Run) -> None:
        everything = list(calls_of(run))
        rows = {call.index: list(tensors_of(run, call)) for call in everything}
        everything = [_with_status(call, rows[call.index]) for call in everything]
        wanted = [call for call in everything if self._config.selection.wants_call(call)]
        kept = _to_keep(wanted, rows, self._config.values)
        base, process, rank = msgspec.structs.replace(self._numbers), self.writer.process.process, self.writer.process.rank
        step = everything[0].step if everything else 0
        calls = [_moved_call(call, base, process=process, rank=rank) for call in wanted]
        tensors = [self._tensor(run, row, base, keep=call.index in kept) for call in wanted for row in rows[call.index]
                   if self._config.selection.wants_io(row.io)]  # fmt: skip
        used = {call.stack for call in wanted}
        stacks = [msgspec.structs.replace(stack, process=process, stack=stack.stack + base.stack)
                  for stack in records(run, "stacks") if stack.stack in used]  # fmt: skip
        self._count(everything, rows, records(run, "stacks"))
        for table, batch in (("stacks", stacks), ("calls", calls), ("tensors", tensors)):
            if batch:
                self.writer.append(table, encode_rows(table, batch), step=step)

    def _tensor(self, run: Run, row: Tensor, base: _Numbers, *, keep: bool) -> Tensor:
        value = self._keep(run, row) if keep and row.value is not None else None
        return msgspec.structs.replace(
            row, process=self.writer.process.process, index=row.index + base.index, value=value,
            version=None if row.version is None else row.version + base.version,
            storage=None if row.storage is None else row.storage + base.storage,
        )  # fmt: skip

    def _keep(self, run: Run, row: Tensor) -> ValueRef | None:
        try:
            values = np.ascontiguousarray(run.value(row))
        except OpscopeError as error:
            self.problems.append(str(error))
            return None
        return self.writer.keep_value(values, dtype=row.dtype, shape=values.shape)

    def _count(self, calls: Sequence[Call], rows: dict[int, list[Tensor]], stacks: Iterable[Stack]) -> None:
        numbers, tensors = self._numbers, [row for part in rows.values() for row in part]
        numbers.index += 1 + max((call.index for call in calls), default=-1)
        numbers.version += 1 + max((row.version for row in tensors if row.version is not None), default=-1)
        numbers.storage += 1 + max((row.storage for row in tensors if row.storage is not None), default=-1)
        numbers.stack += 1 + max((stack.stack for stack in stacks), default=-1)


def _moved_call(call: Call, base: _Numbers, *, process: int, rank: int) -> Call:
    return msgspec.structs.replace(
        call, process=process, rank=rank, index=call.index + base.index,
        parent=None if call.parent is None else call.parent + base.index,
        forward_index=None if call.forward_index is None else call.forward_index + base.index,
        stack=None if call.stack is None else call.stack + base.stack,
    )  # fmt: skip


def _with_status(call: Call, rows: Sequence[Tensor]) -> Call:
    """The call with its overflow bits, where the dump has none of its own."""
    if call.status is not None:
        return call
    inputs, outputs = ([row for row in rows if row.io == io] for io in ("input", "output"))
    return msgspec.structs.replace(call, status=overflow_bits(call.op, call.args, inputs, outputs))


def _to_keep(calls: Sequence[Call], rows: dict[int, list[Tensor]], policy: str) -> set[int]:
    """Calls whose values are kept: all; those that made something unsound of sound inputs, with what fed them; none."""
    if policy == "none":
        return set()
    if policy != "anomaly":
        return {call.index for call in calls}
    producers = {row.version: call.index for call in calls for row in rows[call.index] if row.io == "output" and row.version is not None}
    kept: set[int] = set()
    for call in calls:
        inputs = [row for row in rows[call.index] if row.io == "input"]
        outputs = [row for row in rows[call.index] if row.io == "output"]
        if call.status or is_origin(inputs, outputs):
            kept.add(call.index)
            kept.update(producers[row.version] for row in inputs if row.version in producers)
    return kept
