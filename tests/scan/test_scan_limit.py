# SPDX-License-Identifier: Apache-2.0
"""A dump without inputs whose output stands at the end of its type."""

from __future__ import annotations

import pytest

from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Process, Tensor
from opscope.scan.api import scan


def run_with(op: str, **statistics: float) -> MemoryRun:
    call = Call(
        process=0,
        rank=0,
        step=0,
        index=0,
        level="operator",
        phase="forward",
        op=op,
        name="Default/Add-op0",
    )
    facts = {
        "size": 2,
        "nan": 0,
        "pos_inf": 0,
        "neg_inf": 0,
        "zero": 0,
        "neg": 0,
        "pos": 2,
        "near_limit": 2,
        **statistics,
    }
    row = Tensor(process=0, index=0, io="output", slot="0", dtype="float16", shape=(2,), **facts)  # type: ignore[arg-type]
    return MemoryRun(
        RunInfo(path="dump", format="cann"), [Process(process=0, directory="")], [call], [row]
    )


def test_arithmetic_at_the_largest_value_is_suspected() -> None:
    document = scan(run_with("Add", min=65504.0, max=65504.0))
    assert [(finding.op, finding.confidence) for finding in document.findings] == [
        ("Add", "suspected")
    ]


@pytest.mark.parametrize(
    ("op", "low", "high"),
    [("Fill", 65504.0, 65504.0), ("Add", -65504.0, 3.0), ("Add", 1.0, 65472.0)],
)
def test_masks_and_constants_are_not(op: str, low: float, high: float) -> None:
    assert scan(run_with(op, min=low, max=high)).findings == ()
