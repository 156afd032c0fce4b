# SPDX-License-Identifier: Apache-2.0
"""Takes one folder of a MindSpore dump, an iteration of a graph, into the run: statistics of
everything, values that are wanted.

The tensors are reduced as they land, and deleted when the dump is ours, so that the disk holds a
few iterations at a time.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opscope.arrays import Array
from opscope.errors import OpscopeError
from opscope.formats.mindspore.failed import Failed
from opscope.formats.mindspore.reader import open_dump
from opscope.operators.catalogue import knowing
from opscope.record.arrays import bytes_of, measured
from opscope.record.chosen import Chosen
from opscope.record.mindspore.bits import is_origin, overflow_bits
from opscope.record.mindspore.place import handed_declared
from opscope.record.mindspore.raised import Raised, read_raised, taken_input
from opscope.record.operators_met import OperatorsMet, told_row
from opscope.run.query import calls as calls_of
from opscope.run.query import records, tensors_of
from opscope.run.schema import Call, Stack, Tensor, ValueRef

if TYPE_CHECKING:
    from opscope.record.config import RecordConfig
    from opscope.run.protocol import Run
    from opscope.run.store.writer import ProcessWriter


class Within(msgspec.Struct, frozen=True, kw_only=True):
    """Where compiled calls run: the step it is in; of a PyNative program the Cell around them, its
    phase, the line that calls it.

    names counts how often a name was given in the step; versions has the version of bytes that are
    known, by digest.
    """

    step: int
    parent: int | None = None
    module: str | None = None
    phase: str | None = None
    source: str | None = None
    names: Counter[str] = msgspec.field(default_factory=Counter)
    versions: Mapping[int, int] = {}


class Taken(msgspec.Struct, frozen=True):
    """What a folder held: phases of its calls, and versions of what they made, by digest."""

    phases: frozenset[str] = frozenset()
    finding: bool = False
    made: Mapping[int, int] = {}


class Numbers(msgspec.Struct):
    """The next free number of each kind in one process's tables, shared by whoever writes rows into
    them.
    """

    index: int = 0
    version: int = 0
    storage: int = 0
    stack: int = 0

    def next_index(self) -> int:
        """A number for a call."""
        self.index += 1
        return self.index - 1

    def next_version(self) -> int:
        """A number for bytes that were not seen before."""
        self.version += 1
        return self.version - 1

    def next_stack(self) -> int:
        """A number for a stack."""
        self.stack += 1
        return self.stack - 1


NOTHING = Taken()
Slot = tuple[int, str, str]  # index, io and slot of a row
Where = Callable[[frozenset[str]], Within]


class Ingestor:
    """Takes folders of one process into its tables, in the order they were finished; place is where
    that process tells what it raised.
    """

    def __init__(
        self,
        writer: ProcessWriter,
        config: RecordConfig,
        *,
        place: Path | None = None,
        numbers: Numbers | None = None,
        chosen: Chosen | None = None,
    ) -> None:
        self.writer = writer
        self._place = place
        self.problems: list[str] = []
        self.chosen = chosen or Chosen()
        self._config = config
        self._numbers = numbers or Numbers()
        self._ops: set[str] = set()
        self._met = OperatorsMet(writer.directory)

    def take(self, folder: Path, *, owned: bool, within: Where | None = None) -> Taken:
        """Read a folder, write its rows, and delete it when it is ours; what cannot be read is a
        line in problems.

        within is asked, with the phases of the calls, where in the program they ran.
        """
        with knowing(declared=handed_declared(self._place)):
            return self._take(folder, owned=owned, within=within)

    def _take(self, folder: Path, *, owned: bool, within: Where | None) -> Taken:
        taken = NOTHING
        raised = read_raised(self._place, folder) if self._place is not None else None
        if raised is not None and raised.kernel is None:
            self.problems.append(
                f"{raised.error}: one of {', '.join(raised.candidates)}; which of them it was "
                "cannot be told"
            )
        try:
            run = open_dump(
                folder,
                failed=Failed(raised.error, raised.kernel)
                if raised is not None and raised.kernel is not None
                else None,
            )
            taken = self._write(run, within, raised)
            self.problems.extend(run.problems)
        except (OpscopeError, OSError) as error:
            self.problems.append(str(error))
        if owned:
            shutil.rmtree(folder, ignore_errors=True)
        return taken

    def end_step(self, step: int, *, finding: bool) -> None:
        """Say that all graphs of a step are in."""
        self.writer.end_step(step, finding=finding)

    def meet(self, op: str) -> None:
        """An operator has a row: what this process knows to be declared of it goes with the run."""
        if op not in self._ops:
            self._ops.add(op)
            self._met.meet(op, told_row(op, {}))

    def close(self) -> None:
        """The process has ended, and everything is taken."""
        with knowing(declared=handed_declared(self._place)):
            for op in self._ops:
                self._met.meet(op, told_row(op, {}))
        self.writer.close()

    def _write(self, run: Run, where: Where | None, raised: Raised | None) -> Taken:
        everything = list(calls_of(run))
        phases = frozenset(call.phase for call in everything if call.level == "operator")
        within = where(phases) if where is not None else None
        rows = {call.index: list(tensors_of(run, call)) for call in everything}
        taken = self._take_from_program(everything, rows, raised)
        everything = [_with_status(call, rows[call.index]) for call in everything]
        if within is not None:
            everything = [_inside(call, within) for call in everything]
        wanted = [call for call in everything if self._wants(call)]
        stored = _to_keep(wanted, rows, self._config)
        base = msgspec.structs.replace(self._numbers)
        self._count(everything, rows, records(run, "stacks"))
        known = within.versions if within is not None else {}
        versions = _versions(rows, base.version, known)
        process, rank = self.writer.process.process, self.writer.process.rank
        step = everything[0].step if everything else 0
        calls = [_moved_call(call, base, process=process, rank=rank) for call in wanted]
        if within is not None:
            calls = [
                call
                if call.parent is not None
                else msgspec.structs.replace(call, parent=within.parent)
                for call in calls
            ]
        moved = [
            (row, call.index in stored)
            for call in wanted
            for row in rows[call.index]
            if self._config.selection.wants_io(row.io)
        ]
        tensors = [
            self._tensor(run, row, (base, versions, taken), keep=keep) for row, keep in moved
        ]
        used = {call.stack for call in wanted}
        stacks = [
            msgspec.structs.replace(stack, process=process, stack=stack.stack + base.stack)
            for stack in records(run, "stacks")
            if stack.stack in used
        ]
        for call in calls:
            self.meet(call.op)
        rows_of_tables = {"stacks": stacks, "calls": calls, "tensors": tensors}
        self.writer.append_rows(rows_of_tables, step=step)
        landed = _taken(phases, rows, versions)
        return msgspec.structs.replace(
            landed, finding=landed.finding or any(call.error is not None for call in calls)
        )

    def _take_from_program(
        self, calls: Sequence[Call], rows: dict[int, list[Tensor]], raised: Raised | None
    ) -> dict[Slot, Array]:
        """What the call that raised has read and no file holds; its rows get the statistics."""
        arrays: dict[Slot, Array] = {}
        for call in calls if raised is not None else ():
            for number, row in enumerate(rows[call.index]) if call.error is not None else ():
                array = (
                    taken_input(self._place, raised, row)
                    if self._place is not None and raised is not None and row.value is None
                    else None
                )
                if array is not None:
                    arrays[row.index, row.io, row.slot] = array
                    rows[call.index][number] = measured(row, array)
        return arrays

    def _wants(self, call: Call) -> bool:
        if not self._config.selection.wants_call(call):
            return False
        return not self._config.set_dump or self.chosen.wants_kernel(
            call.op, call.name, call.module or ""
        )

    def _tensor(
        self,
        run: Run,
        row: Tensor,
        moved: tuple[Numbers, Mapping[int, int], Mapping[Slot, Array]],
        *,
        keep: bool,
    ) -> Tensor:
        base, versions, taken = moved
        array = taken.get((row.index, row.io, row.slot))
        value = (
            self._keep(run, row, array)
            if keep and (row.value is not None or array is not None)
            else None
        )
        return msgspec.structs.replace(
            row,
            process=self.writer.process.process,
            index=row.index + base.index,
            value=value,
            version=None if row.version is None else versions[row.version],
            storage=None if row.storage is None else row.storage + base.storage,
        )

    def _keep(self, run: Run, row: Tensor, array: Array | None) -> ValueRef | None:
        try:
            values = run.value(row) if array is None else array
        except OpscopeError as error:
            self.problems.append(str(error))
            return None
        return self.writer.keep_value(bytes_of(values), dtype=row.dtype, shape=values.shape)

    def _count(
        self, calls: Sequence[Call], rows: dict[int, list[Tensor]], stacks: Iterable[Stack]
    ) -> None:
        numbers, tensors = self._numbers, [row for part in rows.values() for row in part]
        numbers.index += 1 + max((call.index for call in calls), default=-1)
        numbers.version += 1 + max(
            (row.version for row in tensors if row.version is not None), default=-1
        )
        numbers.storage += 1 + max(
            (row.storage for row in tensors if row.storage is not None), default=-1
        )
        numbers.stack += 1 + max((stack.stack for stack in stacks), default=-1)


def _inside(call: Call, within: Within) -> Call:
    """The call in the step, Cell and phase of the program around it, under a name that the step has
    not seen.
    """
    within.names[call.name] += 1
    count = within.names[call.name]
    module = call.module
    if within.module is not None:
        module = ".".join(filter(None, (within.module, call.module or "")))
    name = call.name if count == 1 else f"{call.name}#{count}"
    return msgspec.structs.replace(
        call,
        step=within.step,
        module=module,
        phase=within.phase or call.phase,
        name=name,
        source=call.source or within.source,
    )


def _versions(rows: dict[int, list[Tensor]], base: int, known: Mapping[int, int]) -> dict[int, int]:
    """The process's version for each of the folder's: of what came in from outside it is the one
    whose bytes are the same.
    """
    tensors = [row for part in rows.values() for row in part if row.version is not None]
    made = {row.version for row in tensors if row.io == "output"}
    versions: dict[int, int] = {}
    for row in tensors:
        if row.version is None or row.version in versions:
            continue
        outside = row.version not in made and row.digest is not None
        versions[row.version] = (
            known.get(row.digest, base + row.version)
            if outside and row.digest is not None
            else base + row.version
        )
    return versions


def _taken(
    phases: frozenset[str], rows: dict[int, list[Tensor]], versions: Mapping[int, int]
) -> Taken:
    outputs = [row for part in rows.values() for row in part if row.io == "output"]
    made = {
        row.digest: versions[row.version]
        for row in outputs
        if row.digest is not None and row.version is not None
    }
    return Taken(phases, any(row.nan or row.pos_inf or row.neg_inf for row in outputs), made)


def _moved_call(call: Call, base: Numbers, *, process: int, rank: int) -> Call:
    return msgspec.structs.replace(
        call,
        process=process,
        rank=rank,
        index=call.index + base.index,
        parent=None if call.parent is None else call.parent + base.index,
        forward_index=None if call.forward_index is None else call.forward_index + base.index,
        stack=None if call.stack is None else call.stack + base.stack,
    )


def _with_status(call: Call, rows: Sequence[Tensor]) -> Call:
    """The call with its overflow bits, where the dump has none of its own."""
    if call.status is not None:
        return call
    inputs, outputs = ([row for row in rows if row.io == io] for io in ("input", "output"))
    return msgspec.structs.replace(call, status=overflow_bits(call.op, call.args, inputs, outputs))


def _to_keep(
    calls: Sequence[Call], rows: dict[int, list[Tensor]], config: RecordConfig
) -> set[int]:
    """Calls whose values are kept: all; every Nth; those that made something unsound of sound
    inputs, with what fed them; none.
    """
    if config.values == "none":
        return set()
    if config.values == "full":
        return {call.index for call in calls}
    producers = {
        row.version: call.index
        for call in calls
        for row in rows[call.index]
        if row.io == "output" and row.version is not None
    }
    indices = {
        call.index
        for call in calls
        if config.values == "sample" and call.index % config.sample == 0
    }
    for call in calls:
        inputs = [row for row in rows[call.index] if row.io == "input"]
        outputs = [row for row in rows[call.index] if row.io == "output"]
        if call.error is not None:
            indices.add(call.index)
        elif call.status or is_origin(inputs, outputs):
            indices.add(call.index)
            indices.update(producers[row.version] for row in inputs if row.version in producers)
    return indices
