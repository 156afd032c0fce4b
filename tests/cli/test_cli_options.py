# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opscope.cli.options import interpreter, recorded_by
from opscope.errors import UsageError


def test_the_interpreter_is_one_that_can_be_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert interpreter(None) is None
    assert interpreter(sys.executable) == sys.executable
    (tmp_path / "python9").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    assert interpreter("./python9") == str(tmp_path / "python9")
    with pytest.raises(UsageError, match="no such program"):
        interpreter(str(tmp_path / "nothing"))


def test_an_interpreter_is_shown_only_where_a_run_names_one(tmp_path: Path) -> None:
    python = tmp_path / "bin/python3.11"
    python.parent.mkdir()
    python.touch()
    assert recorded_by((str(python), "train.py")) == str(python)
    odd = tmp_path / "\x1b[2J"
    odd.mkdir()
    (odd / "python").touch()
    for command in (
        (),
        ("python", "train.py"),
        ("/nowhere/python",),
        (str(tmp_path / "torchrun"),),
        (str(odd / "python"),),
        (sys.executable, "train.py"),  # this one: nothing to be chosen
    ):
        assert recorded_by(command) is None
