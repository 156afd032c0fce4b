# SPDX-License-Identifier: Apache-2.0
"""--operators FILE: what operators are, told to a verb."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli_runs import ended, write_run

PROGRAM = """
import sys, torch
library = torch.library.Library("clilib", "DEF")
library.define("noise(Tensor x) -> Tensor")
library.impl("noise", lambda x: x + torch.randn(x.shape), "CPU")
torch.manual_seed(int(sys.argv[1]))
torch.ops.clilib.noise(torch.ones(4, 4)).sum()
"""
OPSCOPE = (sys.executable, "-m", "opscope")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "mine.txt").write_text("# mine\nclilib::noise  random\n")
    return tmp_path


def recorded(place: Path, name: str, seed: int, *options: str) -> None:
    line = (*OPSCOPE, "run", "-o", name, *options, "--", sys.executable, "train.py", seed)
    assert ended(line, place).returncode == 0


def compared(place: Path, *options: str) -> tuple[int, str]:
    done = ended((*OPSCOPE, "compare", "a", "b", "--json", *options), place)
    return done.returncode, "\n".join(json.loads(done.stdout)["summary"]["warnings"])


def test_a_file_changes_a_verdict(place: Path) -> None:
    for seed, name in enumerate("ab"):
        recorded(place, name, seed)
    code, warnings = compared(place)
    assert code == 1
    assert "clilib::noise.default: nothing is known of what this computes" in warnings
    code, warnings = compared(place, "--operators", "mine.txt")
    assert code == 0
    assert "clilib::noise.default: drew other random numbers" in warnings


def test_what_was_told_while_recording_goes_with_the_run(place: Path) -> None:
    for seed, name in enumerate("ab"):
        recorded(place, name, seed, "--operators", "mine.txt")
    assert compared(place)[0] == 0


def test_a_program_that_is_killed_leaves_what_it_met(place: Path) -> None:
    (place / "train.py").write_text(f"{PROGRAM}import os\nos.kill(os.getpid(), 9)\n")
    line = (*OPSCOPE, "run", "-o", "a", "--operators", "mine.txt")
    ended((*line, "--", sys.executable, "train.py", 0), place)
    (file,) = place.glob("a/processes/p-*/operators.json")
    assert json.loads(file.read_bytes()) == {
        "version": 1,
        "operators": {"clilib::noise.default": {"random": True}},
    }


def test_workers_are_told_too(place: Path) -> None:
    for seed, name in enumerate("ab"):
        recorded(place, name, seed)
    assert compared(place, "--executor", "processes:1")[0] == 1
    code, warnings = compared(place, "--executor", "processes:1", "--operators", "mine.txt")
    assert code == 0
    assert "clilib::noise.default: drew other random numbers" in warnings


@pytest.mark.parametrize("verb", [("scan", "a"), ("run", "-o", "c"), ("replay", "a")])
def test_a_file_that_cannot_be_read(place: Path, verb: tuple[str, ...]) -> None:
    write_run(place / "a", place / "model.py")
    (place / "mine.txt").write_text("clilib::noise movs\n")
    command = ("--", sys.executable, "train.py", "0") if verb[0] == "run" else ()
    done = ended((*OPSCOPE, *verb, "--operators", "mine.txt", *command), place)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "opscope: mine.txt:1: movs is no trait, or stands there twice"
    ]
