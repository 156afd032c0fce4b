# SPDX-License-Identifier: Apache-2.0
"""Which time a line made a call: said where no step says it, and only there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import opscope
from opscope.questions.findings import times_of
from opscope.run.keys import key
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call


def times(*calls: tuple[str, str | None], asked: int, step: int = 0) -> tuple[int, int] | None:
    """Of the call of that number, among calls of an operator from a line each; the last in step."""
    rows = [
        Call(
            process=0,
            rank=0,
            index=index,
            op=op,
            level="operator",
            step=step if index == len(calls) - 1 else 0,
            phase="forward",
            name=f"call#{index}",
            source=source,
        )
        for index, (op, source) in enumerate(calls)
    ]
    run = MemoryRun(RunInfo(path="rows", format="test"), [], rows, [])
    return times_of(run, np.array([key(0, asked)])).get((0, asked))


LOOP = (("aten::mm", "/me/a.py:3"), ("aten::log", "/me/a.py:4"), ("aten::log", "/me/a.py:3"))


def test_calls_of_an_operator_from_one_line_are_counted() -> None:
    assert times(*LOOP * 5, asked=7) == (3, 5)
    assert times(*LOOP * 5, asked=0) == (1, 5)


def test_what_happened_once_and_what_has_no_line_is_not_counted() -> None:
    assert times(*LOOP, asked=1) is None
    assert times(*((op, None) for op, _ in LOOP * 5), asked=7) is None


def test_a_run_with_steps_says_them() -> None:
    assert times(*LOOP * 5, asked=7, step=1) is None


def test_a_loop_over_plain_tensors_says_in_which_turn_it_overflowed(tmp_path: Path) -> None:
    x = torch.full((4,), 10.0)
    with opscope.record(tmp_path / "run"):
        for turn in range(6):
            grown = x * 10.0 ** (8 * turn)  # leaves float32 at 1e39: the sixth
    assert not bool(torch.isfinite(grown).all())
    (finding,) = opscope.scan(tmp_path / "run").findings
    assert finding.step == 0
    assert finding.reasons[-1].startswith("time 6 of 6 ")


@pytest.mark.parametrize("steps", [1, 3])
def test_a_training_says_its_step(tmp_path: Path, steps: int) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with opscope.record(tmp_path / "run"):
        for _ in range(steps):
            loss = model(torch.full((2, 2), torch.inf)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    for finding in opscope.scan(tmp_path / "run").findings:
        assert not any(reason.startswith("time ") for reason in finding.reasons)
