# SPDX-License-Identifier: Apache-2.0
"""`opscope watch`: what it says of a run that grows, and that it ends with the recording."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from cli_runs import write_run
from tests.view.view_runs import overflowing

from opscope.cli import main
from opscope.cli.watch import follow, look
from opscope.errors import OpscopeError
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.store.layout import create_run, seal_run


def test_an_overflow_is_told_and_before_it_what_is_nearest_to_its_limit() -> None:
    run = overflowing(steps=3)
    before = MemoryRun(run.info, run.processes, run.rows("calls")[:6], run.rows("tensors")[:14])
    assert look(before).line() == "step 1  6 calls  largest 3: blocks.0:mm#1"
    nearly = [
        msgspec.structs.replace(tensor, max=6e4) if tensor.index == 3 else tensor
        for tensor in before.rows("tensors")
    ]
    near = MemoryRun(run.info, run.processes, before.rows("calls"), nearly)
    assert look(near).line().endswith("largest 6e+04, 92% of float16's limit: blocks.0:mm#1")
    calls = [
        msgspec.structs.replace(call, status=0x400 if call.index == 6 else None)
        for call in run.rows("calls")
    ]
    flagged = MemoryRun(run.info, run.processes, calls, run.rows("tensors"))
    assert look(flagged).line() == "step 2  9 calls  overflow in step 2: blocks.0:mm#1"


def test_the_first_overflow_is_that_of_the_first_step() -> None:
    run = overflowing(steps=3)
    calls = [
        msgspec.structs.replace(call, status=0x400 if call.index in (4, 7) else 0)
        for call in reversed(run.rows("calls"))
    ]
    found = look(MemoryRun(run.info, run.processes, calls))
    assert found.flagged == (1, "blocks.0:_softmax#1")
    assert found.nearest is None


def test_a_run_without_a_call_is_said_to_have_none() -> None:
    assert look(MemoryRun(RunInfo(path="x", format="opscope"))).line() == "no call yet"


def test_it_tells_what_has_changed_and_ends_when_the_recording_does(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", command=["python"], version="0")
    said: list[str] = []
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            (run / "note-1.txt").write_text("grown\n")  # which changes nothing that is told
        if len(slept) == 3:
            seal_run(run)

    last = follow(run, said.append, sleep=sleep, every=7.0)
    assert last.info.sealed
    assert said == ["no call yet"]
    assert len(slept) == 3
    assert min(slept) >= 7.0


def test_a_run_that_is_over_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", tmp_path / "train.py")
    assert main(["watch", str(run)]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("step 1  4 calls  largest ")
    assert told.out.count("\n") == 1
    assert "opscope scan" in told.err


def test_what_is_no_run_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(OpscopeError, match="no known dump or run"):
        follow(tmp_path, print, sleep=lambda seconds: None, every=1.0)
