# SPDX-License-Identifier: Apache-2.0
"""A call that raises keeps its inputs, so that it can be cut out with the values it raised on."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch

import opscope
from opscope.record.torch.sentinel import MOST_RAISED
from opscope.run.protocol import Run
from opscope.run.query import calls, tensors_of


def kept(run: Run) -> list[list[list[float]]]:
    failed = [call for call in calls(run) if call.error is not None and call.level == "operator"]
    return [
        [run.value(row).tolist() for row in tensors_of(run, call) if row.value is not None]
        for call in failed
    ]


@pytest.mark.parametrize("native", [True, False])
def test_the_inputs_are_kept(native: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr("opscope.kernels.compiled.load_recorder", lambda: None)
    a, b = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
    with opscope.record(tmp_path / "run") as recording, contextlib.suppress(RuntimeError):
        a @ b
    assert recording.path is not None
    assert kept(opscope.open_run(recording.path)) == [[a.tolist(), b.tolist()]]


def test_with_values_none_nothing_is_kept(tmp_path: Path) -> None:
    with (
        opscope.record(tmp_path / "run", values="none") as recording,
        contextlib.suppress(RuntimeError),
    ):
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert recording.path is not None
    assert kept(opscope.open_run(recording.path)) == [[]]


def test_a_program_that_catches_without_end_fills_no_disk(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run") as recording:
        for number in range(MOST_RAISED + 9):
            with contextlib.suppress(RuntimeError):
                torch.full((2, 3), float(number)) @ torch.ones(2, 3)
    assert recording.path is not None
    found = kept(opscope.open_run(recording.path))
    assert len(found) == MOST_RAISED + 9
    assert sum(bool(values) for values in found) == MOST_RAISED
