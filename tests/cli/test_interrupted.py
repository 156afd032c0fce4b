# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in a search: exit code 130, one line that says how it goes on, and nothing left behind
that runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opscope.bisect import trials as bisect_trials
from opscope.cli import main
from opscope.minimize import api as minimize
from opscope.minimize.minimized import Minimized, Size
from opscope.replay import api as replay
from opscope.repro.runner import Outcome


def interrupt(*words: Any, **options: Any) -> Any:
    raise KeyboardInterrupt


def test_bisect_keeps_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bisect_trials, "_run", interrupt)
    assert main(["bisect", "-o", str(tmp_path / "s"), "--", "sh", "train.sh"]) == 130
    assert "interrupted; the same command goes on where it was" in capsys.readouterr().err
    assert (tmp_path / "s" / "bisect.log").exists()


def test_minimize_writes_the_best_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = Size(elements=1, telling=1, bytes=4, shapes={"0": (1,)})
    found = Minimized(
        directory=str(tmp_path),
        shown=1,
        tried=1,
        told="",
        ended="interrupted",
        before=size,
        after=size,
        outcome=Outcome(status="reproduced", exit_code=1),
    )
    monkeypatch.setattr(minimize, "minimize", lambda *words, **options: found)
    assert main(["minimize", str(tmp_path)]) == 130


def test_replay_keeps_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from opscope.formats import registry

    monkeypatch.setattr(registry, "open_run", lambda path: None)
    monkeypatch.setattr(replay, "replay_calls", interrupt)
    assert main(["replay", "run", "-o", str(tmp_path / "r")]) == 130
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(tmp_path / "r") in said
