# SPDX-License-Identifier: Apache-2.0
"""Records a function in this process and gives its rows."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import opscope
from opscope.kernels import compiled
from opscope.record.torch.optimizers import optimizers
from opscope.run.arrow import decode_stream
from opscope.run.schema import Call, Tensor


@dataclass(frozen=True)
class Recorded:
    """Rows of a finished recording, by index, and the run itself."""

    run: Any
    calls: tuple[Call, ...]
    tensors: tuple[Tensor, ...]

    def named(self, name: str) -> Call:
        return next(call for call in self.calls if call.name == name)

    def all(self, op: str, **facts: Any) -> list[Call]:
        return [
            c
            for c in self.calls
            if op in c.op and all(getattr(c, key) == value for key, value in facts.items())
        ]

    def inputs(self, call: Call) -> dict[str, Tensor]:
        return {t.slot: t for t in self.tensors if t.index == call.index and t.io == "input"}

    def outputs(self, call: Call) -> dict[str, Tensor]:
        return {t.slot: t for t in self.tensors if t.index == call.index and t.io == "output"}


def record(
    folder: Path, program: Callable[[], Any], *, plain: bool = False, **options: Any
) -> Recorded:
    """Rows of what a function did; plain takes the reference bookkeeper instead of the compiled
    one.
    """
    if any(optimizers()):  # what another test left to be collected would be one of this program
        gc.collect()
    native = compiled.load_recorder
    if plain:
        compiled.load_recorder = lambda: None
    try:
        with opscope.record(folder / "run", **options) as recording:
            program()
    finally:
        compiled.load_recorder = native
    return read(recording.path)


def read(path: Path) -> Recorded:
    run = opscope.open_run(path)
    calls = sorted(
        decode_stream("calls", run.table("calls")), key=lambda call: (call.process, call.index)
    )
    return Recorded(run, tuple(calls), tuple(decode_stream("tensors", run.table("tensors"))))
