# SPDX-License-Identifier: Apache-2.0
"""Collects the rows of a dump as its reader meets them, process by process: numbers calls, tells
those of one name apart, and holds each stack once.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from opscope.errors import FormatError
from opscope.formats.foreign import Tables
from opscope.run.access import TensorRow
from opscope.run.schema import Call, Process, Stack


class RunBuilder:
    """Rows in, tables out. `index` is the number that the next call of the process gets; read says
    whether anything was, problems is one line for what could not be.
    """

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.calls: list[Call] = []
        self.stacks: list[Stack] = []
        self.problems: list[str] = []
        self.read = False
        self.index = 0
        self._stacks: dict[tuple[str, ...], int] = {}
        self._names: dict[tuple[int, str], int] = defaultdict(int)

    def start_process(self, directory: str, rank: int) -> None:
        """What follows belongs to another process."""
        number = len(self.processes)
        self.processes.append(Process(process=number, directory=directory, rank=rank))
        self.index = 0
        self._stacks.clear()
        self._names.clear()

    @property
    def process(self) -> Process:
        """The process that calls belong to."""
        return self.processes[-1]

    def add_call(self, *, name: str, step: int, **columns: Any) -> Call:
        """The next call of the process; one whose name the step has already gets its count behind
        it.
        """
        self._names[step, name] += 1
        count = self._names[step, name]
        call = Call(
            process=self.process.process,
            rank=self.process.rank,
            step=step,
            index=self.index,
            name=name if count == 1 else f"{name}#{count}",
            **columns,
        )
        self.index += 1
        self.calls.append(call)
        return call

    def add_stack(self, frames: tuple[str, ...]) -> int | None:
        """The number of a stack within the process; None for none."""
        if not frames:
            return None
        if frames not in self._stacks:
            self._stacks[frames] = len(self._stacks)
            self.stacks.append(
                Stack(process=self.process.process, stack=self._stacks[frames], frames=frames)
            )
        return self._stacks[frames]

    def tables(
        self, path: Path, nothing: str, hashes: dict[TensorRow, str] | None = None
    ) -> Tables:
        """What was collected; FormatError that says what was looked for where nothing was read."""
        if not self.read:
            raise FormatError(path, self.problems[0] if self.problems else nothing)
        return Tables(
            calls=tuple(self.calls),
            processes=tuple(self.processes),
            stacks=tuple(self.stacks),
            problems=tuple(self.problems),
            hashes={} if hashes is None else hashes,
        )
