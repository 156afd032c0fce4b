# SPDX-License-Identifier: Apache-2.0
"""When rows go to the disk: those of short steps together, all of them before long, and none to the
wrong segment.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

import opscope
from opscope.record import session
from opscope.run.store.ipc import IpcFile


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is so long ago that its rows are due, and no optimizer of another test lives."""
    gc.collect()
    monkeypatch.setattr(session, "STEP_SECONDS", 1e9)


def train(steps: int) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        (weight * 2).sum().backward()
        optimizer.step()


def steps_of(run: Path) -> Counter[int]:
    return Counter(
        step for batch in opscope.open_run(run).columns("calls", ["step"]) for step in batch["step"]
    )


def files(run: Path, name: str) -> list[IpcFile]:
    return [IpcFile(path) for path in sorted(run.glob(f"processes/*/{name}"))]


@pytest.mark.usefixtures("patient")
def test_short_steps_share_a_batch_and_lose_nothing(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run", keep="all"):
        train(40)
    (calls,) = files(tmp_path / "run", "calls*.arrow")
    found = steps_of(tmp_path / "run")
    assert len(calls.batches) < 10
    assert list(found) == list(range(40))
    assert len({found[step] for step in range(1, 40)}) == 1


@pytest.mark.usefixtures("patient")
def test_segments_end_where_they_did(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run", keep="last:8"):
        train(41)
    kept = sorted(steps_of(tmp_path / "run"))
    assert kept == list(range(32, 41))
    for calls in files(tmp_path / "run", "calls-*.arrow"):
        steps = {
            int(step) for batch in calls.batches for step in calls.column(batch, "step").buffers[0]
        }
        assert len({step // 2 for step in steps}) == 1


@pytest.mark.usefixtures("patient")
def test_a_program_that_pauses_has_its_last_steps_on_disk(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run"):
        train(5)
        deadline = time.monotonic() + 30
        while 4 not in steps_of(tmp_path / "run") and time.monotonic() < deadline:
            time.sleep(0.1)
        assert 4 in steps_of(tmp_path / "run")


@pytest.mark.usefixtures("patient")
def test_a_step_with_a_finding_is_written_at_once(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run"):
        train(3)
        weight = torch.nn.Parameter(torch.zeros(3))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        (torch.zeros(3) / weight).sum().backward()
        optimizer.step()
        train(3)
    (calls,) = files(tmp_path / "run", "calls*.arrow")
    assert 3 in {int(calls.column(batch, "step").buffers[0][-1]) for batch in calls.batches}
