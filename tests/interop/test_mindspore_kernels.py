# SPDX-License-Identifier: Apache-2.0
"""`opscope replay` names the kernels of MindSpore that ship wrong, each cut out and failing alone,
and no healthy one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("OPSCOPE_MINDSPORE_PYTHON")
PROGRAM = Path(__file__).with_name("mindspore_kernels.py")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_MINDSPORE_PYTHON names no interpreter"),
]


def opscope(*words: str, place: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "opscope", *words]
    return subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=600, check=False
    )


def replayed(which: str, mode: str, place: Path) -> dict[str, Any]:
    program = (str(PYTHON), str(PROGRAM), which, mode)
    run = opscope("run", "-o", "run", "--values", "full", "--", *program, place=place)
    assert run.returncode == 0, run.stderr
    found = opscope("replay", "run", "--python", str(PYTHON), "--json", place=place)
    document: dict[str, Any] = json.loads(found.stdout)
    return document


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_kernels_that_ship_wrong_are_named_and_fail_alone(mode: str, tmp_path: Path) -> None:
    findings = replayed("wrong", mode, tmp_path)["findings"]
    assert {finding["op"] for finding in findings} == {"Tanh", "Softplus", "Sort", "Maximum"}
    assert {finding["confidence"] for finding in findings} == {"proven"}
    for finding in findings:
        case = tmp_path / finding["op"]
        here = ("-o", case.name, "--python", str(PYTHON))
        cut = opscope("repro", "run", finding["call"], *here, place=tmp_path)
        assert "reproduced 3/3" in cut.stdout, cut.stderr
        alone = subprocess.run(
            [str(PYTHON), str(case / "repro.py")], capture_output=True, text=True, check=False
        )
        assert alone.returncode == 1, alone.stdout
        assert "in truth" in alone.stdout


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_healthy_kernels_and_updates_in_place_are_not_accused(mode: str, tmp_path: Path) -> None:
    document = replayed("healthy", mode, tmp_path)
    assert [(finding["op"], finding["reasons"]) for finding in document["findings"]] == []
    summary = document["summary"]
    assert summary["verdicts"]["agree"] > 0.8 * summary["calls"], summary["verdicts"]
