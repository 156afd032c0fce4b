# SPDX-License-Identifier: Apache-2.0
"""A run of a million calls, written as the recorder writes: 1,000 steps of 1,000 calls that hand one
tensor on, an overflow in a late step.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from opscope.run.arrow import encode_rows
from opscope.run.schema import Call, Tensor
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.writer import ProcessWriter
from opscope.version import VERSION

OPS = (
    "aten::mm.default",
    "aten::add.Tensor",
    "aten::gelu.default",
    "aten::native_layer_norm.default",
)
WRONG = 700  # the step, and the call in it


def step_rows(step: int, calls: int) -> tuple[list[Call], list[Tensor]]:
    """One step: each call reads what the one before it wrote."""
    rows: list[Call] = []
    tensors: list[Tensor] = []
    first, wrong = step * calls, False
    for place in range(calls):
        index, op = first + place, OPS[place % len(OPS)]
        wrong = wrong or (step == WRONG and place == WRONG)
        word = op[6:].partition(".")[0]
        rows.append(
            Call(
                process=0, rank=0, step=step, index=index, level="operator",
                phase="forward" if place < calls // 3 else "backward",
                op=op, module=f"layers.{place // 20}", name=f"layers.{place // 20}:{word}#{place % 20}",
                source="/nowhere/train.py:7",
            )
        )  # fmt: skip
        size = 0.5 + place % 37 * (1 + step / 100)
        facts: dict[str, Any] = {
            "process": 0, "index": index, "dtype": "float16", "shape": (64, 64), "size": 4096,
            "nan": 4096 if wrong and place > WRONG else 0, "neg_inf": 0, "zero": place % 100, "near_limit": 0,
            "pos_inf": 9 if wrong and place == WRONG else 0, "min": -size, "max": size, "l2norm": size,
        }  # fmt: skip
        inherited = {**facts, "nan": 0, "pos_inf": 0}
        if wrong and place > WRONG:
            inherited |= {"nan": 4096} if place > WRONG + 1 else {"pos_inf": 9}
        tensors.append(Tensor(io="input", slot="0", version=index, storage=index, **inherited))
        tensors.append(Tensor(io="output", slot="0", version=index + 1, storage=index + 1, **facts))
    return rows, tensors


def write_large_run(path: Path, *, steps: int = 1000, calls: int = 1000) -> Path:
    """The run at this path, or a sibling of it."""
    made = create_run(path, command=["python", "train.py"], version=VERSION)
    writer = ProcessWriter(made, process_facts())
    for step in range(steps):
        rows, tensors = step_rows(step, calls)
        writer.append("calls", encode_rows("calls", rows), step=step)
        writer.append("tensors", encode_rows("tensors", tensors), step=step)
    writer.close()
    seal_run(made)
    return made


if __name__ == "__main__":
    print(write_large_run(Path(sys.argv[1])))
