# SPDX-License-Identifier: Apache-2.0
"""What stands in for Windows and macOS (bare_system.py): runs and dumps are read there as here,
programs recorded.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import ended, environment

import opscope

BARE = str(Path(__file__).with_name("bare_system.py"))
VERB = "import sys\nfrom opscope.cli import main\nsys.exit(main(sys.argv[1:]))\n"
VERBS = """\
import sys
from opscope.cli import main
run = sys.argv[1]
verbs = [
    ["--help"],
    ["scan", run],
    ["show", run],
    ["query", run, "select count(*) from calls"],
    ["report", run, "-o", "page.html"],
    ["convert", run, "-o", "again"],
    ["compare", run, "again"],
]
print([main(verb) for verb in verbs])
"""
LEARNS = """\
import torch
import opscope
torch.manual_seed(0)
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
with opscope.record("recorded", values="full"):
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).log().sum().backward()
        optimizer.step()
"""

SYSTEMS = pytest.mark.parametrize(
    "system",
    [pytest.param((), id="windows"), pytest.param(("macos",), id="macos", marks=pytest.mark.zoo)],
)


def on(system: tuple[str, ...], place: Path, source: str, *words: object) -> tuple[int, str]:
    """Exit code and output of a program on such a system."""
    file = place / "program.py"
    file.write_text(source, encoding="utf-8")
    line = [sys.executable, "-W", "ignore", BARE, *system, file, *words]
    process = ended(line, place, timeout=240)
    return process.returncode, process.stdout + process.stderr


@SYSTEMS
def test_runs_are_read_and_written(system: tuple[str, ...], tmp_path: Path, run: Path) -> None:
    code, text = on(system, tmp_path, VERBS, run)
    assert (code, text.splitlines()[-1]) == (0, "[0, 1, 0, 0, 0, 0, 0]")
    assert "blocks.0:mm#1" in text


@pytest.mark.zoo
@SYSTEMS
def test_a_program_is_recorded(system: tuple[str, ...], tmp_path: Path) -> None:
    code, text = on(system, tmp_path, LEARNS)
    assert (code, text) == (0, "")
    assert "overflow-origin (proven): step 0, rank 0, aten::log" in str(
        opscope.scan(tmp_path / "recorded")
    )


@SYSTEMS
def test_a_command_ends_with_its_own_code(system: tuple[str, ...], tmp_path: Path) -> None:
    leaves = (sys.executable, "-c", "import sys; sys.exit(7)")
    code, text = on(system, tmp_path, VERB, "run", "-o", "recorded", "--", *leaves)
    assert code == 7
    assert "recording into recorded" in text


def test_a_signal_is_passed_on(tmp_path: Path) -> None:
    """SIGTERM, sent to the launcher alone where the system does not say who sends."""
    waits = tmp_path / "waits.py"
    waits.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\ntime.sleep(200)\n",
        encoding="utf-8",
    )
    verb = tmp_path / "verb.py"
    verb.write_text(VERB, encoding="utf-8")
    command = [BARE, "macos", str(verb), "run", "-o", "recorded", "--", sys.executable, str(waits)]
    with subprocess.Popen(
        [sys.executable, *command], env=environment(), cwd=tmp_path, stdout=subprocess.PIPE
    ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"ready\n"
        os.kill(launcher.pid, signal.SIGTERM)
        assert launcher.wait(timeout=100) == 9
