# SPDX-License-Identifier: Apache-2.0
"""Verbs that need torch say so where it is not installed: no process has died, and nothing is a bug."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cli_runs import write_run

import opscope
from opscope.cli import main
from opscope.replay.worker import Replayer
from opscope.run.query import calls


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an interpreter that has no torch: what imports it is imported anew, and cannot be."""
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in ("opscope.substitute.recorded", "opscope.sweep.samples"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("without_torch")
def test_check_op_cannot_be_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-op", "aten::gelu"]) == 125
    assert "torch is not installed in " in capsys.readouterr().err
    assert main(["check-op"]) == 2


@pytest.mark.usefixtures("without_torch")
def test_a_replay_says_why_no_call_was_made(tmp_path: Path) -> None:
    run = opscope.open_run(write_run(tmp_path / "run", tmp_path / "train.py"))
    replayer = Replayer(run, device=None, repeat=1, synthesise=True)
    reasons = {replayer.replay(call)["reason"] for call in calls(run)}
    assert len(reasons) == 1
    assert "torch is not installed in " in reasons.pop()
