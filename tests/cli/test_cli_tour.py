# SPDX-License-Identifier: Apache-2.0
"""`opscope tour`: without torch, and as a recording of its program would have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import opscope
from opscope.cli.tour import HERE, PROGRAM, ROWS, STOPS, make_example

# An interpreter in which importing a framework fails, for the tour and all that it starts.
WITHOUT = "import sys\nsys.modules['torch'] = sys.modules['mindspore'] = None\n"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    return make_example(tmp_path / "tour")


def test_every_stop_ends_well_and_none_needs_torch(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT)
    path = os.pathsep.join([str(tmp_path / "site"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "opscope", "tour", "-o", "here"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.count("\n$ opscope ") == len(STOPS)
    assert "train.py:18   scores = self.query(x)" in done.stdout
    assert "accumulation overflow" in done.stdout


@pytest.mark.zoo
def test_it_says_what_a_recording_of_its_program_says(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "opscope",
            "run",
            "-o",
            "fresh",
            "--values",
            "none",
            "--",
            sys.executable,
            str(example / "train.py"),
        ],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    told, fresh = opscope.scan(example / "run"), opscope.scan(tmp_path / "fresh")
    assert told.complete
    assert len(told.findings) == len(fresh.findings) == 1
    for name in ("kind", "op", "step", "phase", "module", "source", "status", "confidence"):
        assert getattr(told.findings[0], name) == getattr(fresh.findings[0], name)


def test_its_rows_name_no_place_of_the_machine_that_recorded_them() -> None:
    text = ROWS.read_text(encoding="utf-8")
    assert HERE in text
    assert "/tmp" not in text
    assert "/home" not in text
    assert ".py" not in text.replace(HERE, "").replace(f"/{PROGRAM.name}", "")


def test_a_folder_that_exists_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "tour").mkdir()
    assert make_example(tmp_path / "tour") == tmp_path / "tour-2"
    assert not list((tmp_path / "tour").iterdir())
