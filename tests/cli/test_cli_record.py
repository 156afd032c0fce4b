# SPDX-License-Identifier: Apache-2.0
"""`opscope run` with real torch: the program knows nothing of opscope, and says nothing else than
without it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import Command, environment

pytestmark = pytest.mark.zoo

pytest.importorskip("torch")

PROGRAM = """
import sys
import torch

torch.manual_seed(0)
fc = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(fc.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(4, 8)
    h = fc(x)
    if step == 2:
        h = h * float(sys.argv[1])
    loss = (h.half() ** 2).float().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "训练.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def plain(tmp_path: Path, *words: str) -> str:
    return subprocess.run(
        [sys.executable, *words],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    ).stdout


@pytest.mark.sample
def test_an_overflow_is_named_with_its_line(command: Command, train: Path, tmp_path: Path) -> None:
    done = command(
        "run", "-o", "r", "--json-file", "d.json", "--", sys.executable, train.name, "1e6", "5"
    )
    assert done.returncode == 5
    assert done.stdout == plain(tmp_path, train.name, "1e6", "5")
    (finding, *_) = json.loads((tmp_path / "d.json").read_text())["findings"]
    assert (finding["step"], finding["op"], finding["status"]) == (
        2,
        "aten::_to_copy.default",
        "0x100",
    )
    lines = done.stderr.splitlines()
    assert lines[0] == "opscope: recording into r"
    assert "first overflow  step 2  aten::_to_copy  forward  <root>" in lines
    assert "  训练.py:13   loss = (h.half() ** 2).float().mean()" in lines
    assert lines[-1].startswith("next  opscope repro r ")
    run = json.loads((tmp_path / "r" / "run.json").read_text())
    assert [process["exit_code"] for process in run["processes"]] == [5]


def test_a_clean_run_says_one_line(command: Command, train: Path) -> None:
    done = command("run", "-o", "r", "--", sys.executable, train.name, "1", "0")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)
    first, second = done.stderr.splitlines()
    assert first == "opscope: recording into r"
    assert second.startswith("opscope  no overflow, NaN or Inf in ")


def test_children_record_too(command: Command, train: Path, tmp_path: Path) -> None:
    """The program that is started does not import torch; the ones it starts do."""
    (tmp_path / "job.sh").write_text(
        f"for n in 1 2; do {sys.executable} {train.name} 1 0 & done; wait\n"
    )
    done = command("run", "-o", "r", "--", "bash", "job.sh")
    assert done.returncode == 0, done.stderr
    processes = json.loads((tmp_path / "r" / "run.json").read_text())["processes"]
    assert len({process["pid"] for process in processes}) == 2


def test_import_opscope_honours_the_environment(tmp_path: Path) -> None:
    code = "import opscope, torch\nprint(torch.ones(2).div(0).sum().item())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(OPSCOPE="-o r"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("inf\n", "opscope: recording into r\n")
    run = json.loads((tmp_path / "r" / "run.json").read_text())
    assert run["sealed"]
    assert len(run["processes"]) == 1


def test_settings_that_mindspores_variable_names_hold(
    command: Command, train: Path, tmp_path: Path
) -> None:
    """As --config FILE, which overrules them; a file that cannot be read is said, and the program
    runs.
    """
    common = {"path": str(tmp_path / "tree"), "iteration": "1", "saved_data": "tensor"}
    settings = tmp_path / "data_dump.json"
    settings.write_text(
        json.dumps({"common_dump_settings": common, "e2e_dump_settings": {"enable": True}})
    )
    words = ("--layout", "mindspore", "--", sys.executable, str(train), "1", "0")
    done = command("run", "-o", "run", *words, MINDSPORE_DUMP_CONFIG=str(settings))
    assert done.returncode == 0, done.stderr
    assert "MINDSPORE_DUMP_CONFIG is set" in done.stderr
    assert {path.parent.name for path in (tmp_path / "tree").glob("rank_0/Net/*/*/*.npy")} == {"1"}
    settings.write_text("{")
    broken = command(
        "run",
        "-o",
        "other",
        "--steps",
        "0",
        "--",
        sys.executable,
        str(train),
        "1",
        "0",
        MINDSPORE_DUMP_CONFIG=str(settings),
    )
    assert broken.returncode == 0
    assert "recorded without it" in broken.stderr
