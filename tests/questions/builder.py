# SPDX-License-Identifier: Apache-2.0
"""Runs written row by row, for what no small program on one CPU can do."""

from __future__ import annotations

from typing import Any

from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Judgement, Process, Tensor

FINITE: dict[str, Any] = {
    "size": 4,
    "nan": 0,
    "pos_inf": 0,
    "neg_inf": 0,
    "zero": 0,
    "neg": 2,
    "pos": 2,
    "near_limit": 0,
    "min": -1.0,
    "max": 1.0,
}


def state(version: int | None, **changes: Any) -> dict[str, Any]:
    """One tensor of a call: four finite float32 elements, with changes."""
    return {
        "version": version,
        "storage": version,
        "offset": 0,
        "dtype": "float32",
        "shape": (4,),
        **FINITE,
        **changes,
    }


def unread(version: int | None, **changes: Any) -> dict[str, Any]:
    """A tensor whose values nobody looked at."""
    return state(version, **dict.fromkeys(FINITE), **changes)


class Builder:
    """Collects calls in order; op names without a namespace are aten's."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.tensors: list[Tensor] = []
        self.judgements: list[Judgement] = []
        self.processes: dict[int, Process] = {}
        self.step = 0

    def call(
        self, op: str, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]], **columns: Any
    ) -> int:
        """Add one call; returns its index. slots are numbered unless a tensor names its own."""
        process = columns.pop("process", 0)
        rank = columns.pop("rank", process)
        index = sum(call.process == process for call in self.calls)
        full = op if "::" in op or op[0].isupper() else f"aten::{op}.default"
        columns = {
            "level": "operator",
            "phase": "forward",
            "step": self.step,
            "name": f"{op}#{index}",
            **columns,
        }
        self.calls.append(Call(process=process, rank=rank, index=index, op=full, **columns))
        for io, tensors in (("input", inputs), ("output", outputs)):
            for position, tensor in enumerate(tensors):
                self.tensors.append(
                    Tensor(process=process, index=index, io=io, **{"slot": str(position), **tensor})
                )
        self.processes.setdefault(
            process, Process(process=process, directory=f"p-{process}", rank=rank, exit_code=0)
        )
        return index

    def ends(self, process: int, **columns: Any) -> None:
        """How a process ended."""
        self.processes[process] = Process(
            process=process, directory=f"p-{process}", rank=process, **columns
        )

    def run(self, *, problems: tuple[str, ...] = (), **info: Any) -> MemoryRun:
        """The run of what was added."""
        about = RunInfo(path="rows", format="test", **info)
        return MemoryRun(
            about,
            self.processes.values(),
            self.calls,
            self.tensors,
            judgements=self.judgements,
            problems=problems,
        )
