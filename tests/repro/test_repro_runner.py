# SPDX-License-Identifier: Apache-2.0
"""Executing a folder: every way it can end is one outcome, and exit code 1 means the failure and
nothing else.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import msgspec
import pytest
import torch
from tests.repro.single_calls import call_row, record, run_of

import opscope.repro
from opscope.errors import UsageError
from opscope.run.schema import Tensor


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run, call = record(
        "aten::mul.Tensor",
        torch.full((3,), 300.0, dtype=torch.float16),
        torch.full((3,), 300.0, dtype=torch.float16),
    )
    opscope.repro.write(run, call, tmp_path / "case")
    return tmp_path / "case"


def fake(directory: Path, code: str) -> Path:
    directory.mkdir()
    (directory / "repro.py").write_text(code)
    return directory


@pytest.mark.zoo
def test_wider_arithmetic_avoids_the_failure(folder: Path) -> None:
    outcome = opscope.repro.execute(folder, dtype="float32")
    assert (outcome.status, outcome.exit_code, outcome.seen["0"]["dtype"]) == (
        "not-reproduced",
        0,
        "float32",
    )
    assert any("90000 in float64" not in line for line in outcome.lines)


@pytest.mark.zoo
def test_device_that_is_missing_here(folder: Path) -> None:
    outcome = opscope.repro.execute(folder, device="npu:0")
    assert (outcome.status, outcome.exit_code) == ("cannot-try", 125)
    assert "npu:0" in outcome.reason


@pytest.mark.zoo
def test_device_and_type_asked_for_when_writing_are_used(folder: Path, tmp_path: Path) -> None:
    run, call = record(
        "aten::mul.Tensor",
        torch.full((3,), 300.0, dtype=torch.float16),
        torch.full((3,), 300.0, dtype=torch.float16),
    )
    opscope.repro.write(run, call, tmp_path / "wide", dtype="torch.float32")
    assert opscope.repro.execute(tmp_path / "wide").status == "not-reproduced"
    opscope.repro.write(run, call, tmp_path / "moved", device="npu:7")
    assert opscope.repro.execute(tmp_path / "moved").status == "cannot-try"
    assert opscope.repro.execute(tmp_path / "moved", device="cpu").status == "reproduced"
    for wrong in ({"device": "cpu; rm -rf"}, {"dtype": "float17"}):
        with pytest.raises(UsageError):
            opscope.repro.write(run, call, tmp_path / "wrong", **wrong)  # type: ignore[arg-type]


@pytest.mark.zoo
def test_call_recorded_on_a_device_that_is_not_here(tmp_path: Path) -> None:
    x = torch.full((3,), 300.0, dtype=torch.float16)
    run, call = record("aten::where.ScalarOther", x > 1, x * torch.tensor(300.0), 1.0)
    elsewhere = [msgspec.structs.replace(row, device="npu:3") for row in run.rows("tensors")]
    values = {(row.io, row.slot): run.value(row) for row in run.rows("tensors")}
    opscope.repro.write(*run_of(elsewhere, values, call), tmp_path / "case")
    assert opscope.repro.read_case(tmp_path / "case").device == "npu:3"
    outcome = opscope.repro.execute(tmp_path / "case")
    assert (outcome.status, outcome.exit_code) == ("cannot-try", 125)
    assert "npu:3" in outcome.reason
    moved = opscope.repro.execute(tmp_path / "case", device="cpu")
    assert (moved.status, moved.device) == ("reproduced", "cpu")


@pytest.mark.zoo
def test_device_arguments_move_with_the_call(tmp_path: Path) -> None:
    tree = {
        "args": [[2], {"float": "inf"}],
        "kwargs": {"dtype": {"dtype": "float16"}, "device": {"device": "cuda:0"}},
    }
    _, call = run_of([], {}, call_row("aten::full.default", tree, device="cuda:0"))
    row = Tensor(
        process=0,
        index=7,
        io="output",
        slot="0",
        dtype="float16",
        shape=(2,),
        device="cuda:0",
        pos_inf=2,
        nan=0,
        neg_inf=0,
    )
    opscope.repro.write(*run_of([row], {}, call), tmp_path / "case")
    assert opscope.repro.execute(tmp_path / "case", device="cpu").status == "reproduced"


def test_repeats_are_counted(folder: Path) -> None:
    outcome = opscope.repro.execute(folder, repeat=3)
    assert (outcome.status, outcome.shown, outcome.tried) == ("reproduced", 3, 3)


def test_no_script(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"repro\.py is not there"):
        opscope.repro.execute(tmp_path)


def wait_for_lock(file: IO[str]) -> None:
    """A process that was killed gives its locks back, but not before it has gone."""
    end = time.monotonic() + 240
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            assert time.monotonic() < end, "the script's child is still there"
            time.sleep(0.05)


def test_a_script_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    """The child would hold the lock for as long as it lives."""
    holding = (
        "import fcntl, sys, time; fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX); "
        "time.sleep(600)"
    )
    directory = fake(
        tmp_path / "case",
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {holding!r}, "
        f"{str(tmp_path / 'lock')!r}])\n",
    )
    outcome = opscope.repro.execute(directory, timeout=2)
    with (tmp_path / "lock").open("w") as lock:
        wait_for_lock(lock)
    assert (outcome.status, outcome.exit_code, outcome.reason) == (
        "timeout",
        125,
        "no verdict after 2 s",
    )


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by signal SIGSEGV"),
        ("import sys; print('note'); sys.exit(1)", "ended by exit code 1"),
        ("raise ValueError('broken')", "ValueError: broken"),
        ("import sys; print('[1]'); sys.exit(0)", "ended by exit code 0"),
        (
            'import sys; print(\'{"verdict": "reproduced"}\'); sys.exit(101)',
            "ended by exit code 101",
        ),
        ("import sys; sys.exit(2)", "ended by exit code 2"),
    ],
)
def test_a_script_without_a_verdict_never_counts_as_reproduced(
    code: str, reason: str, tmp_path: Path
) -> None:
    outcome = opscope.repro.execute(fake(tmp_path / "case", code))
    assert (outcome.status, outcome.exit_code) == ("died", 125)
    assert reason in outcome.reason


def test_what_is_missing_is_said_once(tmp_path: Path) -> None:
    code = (
        "import sys; print('cannot be tried here: No module named mindspore; install "
        "mindspore', file=sys.stderr); sys.exit(125)"
    )
    outcome = opscope.repro.execute(fake(tmp_path / "case", code))
    assert (outcome.status, outcome.reason) == (
        "cannot-try",
        "No module named mindspore; install mindspore",
    )


def test_an_operator_that_prints_does_not_hide_the_verdict(tmp_path: Path) -> None:
    code = (
        'print(\'x\' * 100000)\nprint(\'{"verdict": "reproduced", "shown": 1, "tried": '
        "1}')\nraise SystemExit(1)\n"
    )
    assert opscope.repro.execute(fake(tmp_path / "case", code)).status == "reproduced"


@pytest.mark.zoo
def test_damaged_folder_is_not_a_reproduction(folder: Path) -> None:
    for name, content in (
        ("inputs.safetensors", b"\x08\x00"),
        ("case.json", b"{}"),
        ("case.json", b"\xff"),
    ):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        outcome = opscope.repro.execute(folder)
        assert (outcome.status, outcome.exit_code) == ("died", 125)
        assert "exit code 101" in outcome.reason
        (folder / name).write_bytes(before)


def test_script_without_torch_says_what_is_missing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('No module named torch')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(folder / "repro.py")],
        env=environment,
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 125
    assert "install torch" in done.stderr


@pytest.mark.zoo
def test_script_for_people(folder: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, str(folder / "repro.py")],
        env=environment,
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 1
    assert "90000 is beyond 65504, the largest float16" in " ".join(done.stdout.split())
    assert done.stdout.splitlines()[-1] == "reproduced: inf in output 0, as recorded"
    wrong = subprocess.run(
        [sys.executable, str(folder / "repro.py"), "--repeat", "0"], capture_output=True, text=True
    )
    assert wrong.returncode == 2


@pytest.mark.zoo
def test_what_the_script_prints_fits_80_columns(folder: Path) -> None:
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    note = "an output was wrong when it was recorded: " + "the fault comes and goes, " * 5
    case |= {"warnings": [note], "source": "/a/" + "b" * 90 + ".py:7"}
    (folder / "case.json").write_text(json.dumps(case), encoding="utf-8")
    lines = subprocess.run(
        [sys.executable, str(folder / "repro.py")], capture_output=True, text=True
    ).stdout.splitlines()
    assert [line.split()[-1] for line in lines if len(line) > 80] == [case["source"]], (
        "what cannot be parted stays whole"
    )
    begin = next(
        number for number, line in enumerate(lines) if line.startswith("  note  an output")
    )
    assert lines[begin + 1].startswith(" " * 8)
    assert note.split() == " ".join(lines[begin:-1]).split()[1:]


def test_recording_variables_do_not_reach_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSCOPE_RUN_ID", "x")
    code = (
        "import json, os\nprint(json.dumps({'verdict': 'not reproduced', 'reason': str([n for "
        "n in os.environ if 'OPSCOPE' in n])}))\n"
    )
    assert opscope.repro.execute(fake(tmp_path / "case", code)).reason == "[]"


def test_outcome_travels_as_json(folder: Path) -> None:
    outcome = opscope.repro.execute(folder)
    assert msgspec.json.decode(msgspec.json.encode(outcome), type=opscope.repro.Outcome) == outcome
