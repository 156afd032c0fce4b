# SPDX-License-Identifier: Apache-2.0
"""What the README, the tutorial and the guide type is typed, on the program that they speak of."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.test_docs import DOCS, ROOT, commands

from opscope.cli import main

PAGES = (ROOT / "README.md", DOCS / "tutorial.md", DOCS / "my-loss-is-nan.md")
RECORD = ["run", "-o", "runs/demo", "--", "python", "examples/tiny_gpt/train.py"]
# The tour has tests of its own; this program has no train.py in the first folder.
OTHERS = (["tour"], ["run", "--", "python", "train.py"])
FOUND = {"run": 0, "scan": 1, "repro": 1}  # exit codes: the program's own, and a finding's


@pytest.mark.zoo
def test_every_command_about_the_demo_does_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shown = [words for page in PAGES for words in commands(page) if words not in OTHERS]
    assert RECORD in shown
    recorded = [sys.executable if word == "python" else word for word in RECORD]
    done = subprocess.run(
        [sys.executable, "-m", "opscope", *recorded],
        env={name: value for name, value in os.environ.items() if name != "OPSCOPE"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    # Which step it is depends on how the processor rounds products of float16.
    assert re.search(r"first overflow  step \d  aten::bmm", done.stderr), done.stderr
    rest = {tuple(words) for words in shown if words != RECORD}
    assert len(rest) >= 10
    for words in sorted(rest):
        assert main(words) == FOUND.get(words[0], 0), (words, capfd.readouterr().err)
        assert "opscope: this is a bug" not in capfd.readouterr().err
