# SPDX-License-Identifier: Apache-2.0
"""Small runs in memory: a product that leaves float16 in its last step, a softmax, a loss."""

from __future__ import annotations

from typing import Any

from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Process, Stack, Tensor

LOSS = {"dtype": "float32", "shape": (), "size": 1}
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"


def tensor(index: int, io: str, slot: str, version: int, **more: Any) -> Tensor:
    facts = {"nan": 0, "pos_inf": 0, "neg_inf": 0, "zero": 0, "min": -2.0, "max": 3.0, **more}
    return Tensor(
        process=0,
        index=index,
        io=io,
        slot=slot,
        version=version,
        storage=version,
        offset=0,
        dtype=facts.pop("dtype", "float16"),
        shape=facts.pop("shape", (4, 4)),
        size=facts.pop("size", 16),
        mean=0.5,
        l2norm=4.0,
        **facts,
    )


def step_rows(step: int, *, wrong: bool, name: str, source: str) -> tuple[list[Call], list[Tensor]]:
    """A product, its softmax, a loss; wrong: the product has infinities."""
    first, version = step * 3, step * 10
    bad = {"pos_inf": 5, "max": 65504.0} if wrong else {}
    spread = {"nan": 1, "min": None, "max": None} if wrong else {}
    ops = ("aten::mm.default", "aten::_softmax.default", "aten::nll_loss_forward.default")
    calls = [
        Call(
            process=0,
            rank=0,
            step=step,
            index=first + place,
            level="operator",
            phase="forward",
            op=op,
            module="blocks.0",
            name=f"blocks.0:{name if place == 0 else op[6:-8]}#1",
            source=source,
            stack=0,
        )
        for place, op in enumerate(ops)
    ]
    tensors = [
        tensor(first, "input", "0", version, max=60.0 * (step + 1)),
        tensor(first, "input", "1", version + 1),
        tensor(first, "output", "0", version + 2, **bad),
        tensor(first + 1, "input", "0", version + 2, **bad),
        tensor(first + 1, "output", "0", version + 3, **spread),
        tensor(first + 2, "input", "0", version + 3, **spread),
        tensor(first + 2, "output", "0", version + 4, **{**spread, **LOSS}),
    ]
    return calls, tensors


def overflowing(*, steps: int = 3, name: str = "mm", source: str = "/u/train.py:3") -> MemoryRun:
    calls: list[Call] = []
    tensors: list[Tensor] = []
    for step in range(steps):
        more = step_rows(step, wrong=step == steps - 1, name=name, source=source)
        calls += more[0]
        tensors += more[1]
    return MemoryRun(
        RunInfo(path="/u/runs/x", format="opscope", command=("python", "/u/train.py")),
        [Process(process=0, directory="p")],
        calls,
        tensors,
        [Stack(process=0, stack=0, frames=(f"{source} in forward", "/u/train.py:9 in <module>"))],
    )
