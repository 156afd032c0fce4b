# SPDX-License-Identifier: Apache-2.0
"""A small native run, and the real command line in processes of its own."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import PROGRAM, Command, ended, write_run

from opscope.cli import main


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Run `python -m opscope` in a fresh directory; stdin is empty."""

    def run(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
        return ended([sys.executable, "-m", "opscope", *words], tmp_path, **more)

    return run


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The same without a process of its own, which takes most of the time, for what it says."""

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "80")
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            code = main([*map(str, words)])
        return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "我的 models" / "train.py"
    path.parent.mkdir()
    path.write_text(PROGRAM, encoding="utf-8")
    return path


@pytest.fixture
def run(tmp_path: Path, program: Path) -> Path:
    """A run under a path with Chinese, a blank, a plus and a quote."""
    return write_run(tmp_path / "运行 a+b's", program)
