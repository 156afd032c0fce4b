# SPDX-License-Identifier: Apache-2.0
"""A scan by workers of runs that the product's writer wrote: as in one process, and of more ranks
than are looked at together.
"""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opscope.engine.executors import InThisProcess
from opscope.report.json import json_text
from opscope.run.finding import Finding
from opscope.scan import api, distributed
from opscope.scan.api import scan
from opscope.scan.distributed import Answer, blocks_of
from opscope.scan.part import Part
from tests.scale.job import FAULTS, named, planned, planned_together, told_alone, write_job

MANY = 20  # ranks, more than are looked at together


class Here(InThisProcess):
    """Keeps the size of every answer."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        def counted() -> Any:
            answer = fn(*args, **kwargs)
            self.sent.append(len(answer))
            return answer

        return super().submit(counted)


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_workers_find_what_one_process_finds(fault: str | None, tmp_path: Path) -> None:
    plan = planned(fault, ranks=3, steps=5, layers=2, seed=7)
    run, _ = write_job(tmp_path / "run", plan)
    alone = scan(run)
    assert json.loads(json_text(scan(run, executor=Here()))) == json.loads(json_text(alone))
    assert alone.verdict == ("clean" if fault is None else "found")
    assert fault is None or named(alone, plan)


@pytest.mark.zoo
def test_a_job_of_very_many_ranks_is_read_in_parts_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned("no_exchange", ranks=MANY, steps=4, layers=1, seed=5)
    run, _ = write_job(tmp_path / "run", plan)
    monkeypatch.setattr(api, "MANY", MANY - 1)
    read, by = [], distributed.scan_by

    def parts(*given: Any) -> Part:
        read.append(given)
        return by(*given)

    monkeypatch.setattr(distributed, "scan_by", parts)
    assert named(scan(run), plan)
    assert len(read) == 1


@pytest.mark.parametrize(
    "fault",
    [None, *(pytest.param(each, marks=pytest.mark.zoo) for each in ("nan_forward", "no_exchange"))],
)
def test_of_many_ranks_the_one_is_named(fault: str | None, tmp_path: Path) -> None:
    plan = planned(fault, ranks=MANY, steps=4, layers=2, seed=5)
    run, _ = write_job(tmp_path / "run", plan)
    document = scan(run, executor=Here())
    assert document.complete
    assert document.verdict == ("clean" if fault is None else "found")
    assert fault is None or named(document, plan)
    told = {
        rank for one in document.findings for rank in one.evidence[0].get("odd_ranks", [one.rank])
    }
    assert told <= {fault.rank for fault in plan.faults}


@pytest.mark.zoo
def test_faults_of_many_kinds_in_one_job_are_told_each(tmp_path: Path) -> None:
    plan = planned_together(ranks=MANY, steps=12, layers=2, seed=3)
    run, _ = write_job(tmp_path / "run", plan)
    document = scan(run, executor=Here())
    assert told_alone(document, plan), document.findings


@pytest.mark.zoo
def test_what_is_sent_of_a_rank_does_not_grow_with_its_steps(tmp_path: Path) -> None:
    sent = []
    for steps in (5, 20):
        plan = planned("nan_forward", ranks=2, steps=steps, layers=2, seed=1)
        run, _ = write_job(tmp_path / f"run{steps}", plan)
        here = Here()
        scan(run, executor=here)
        sent.append(max(here.sent))
    assert sent[1] < 2 * sent[0]


def test_what_a_part_and_a_block_say_of_a_rank_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = write_job(tmp_path / "run", planned(None, ranks=2, steps=3, layers=1, seed=1))
    died = Finding(kind="crash", rank=1, step=2, op="aten::mm.default", call="mm.default#9")

    def said(task: bytes, asked: bytes) -> bytes:
        return msgspec.msgpack.encode(Answer(Part(found=((0, died),))))

    monkeypatch.setattr(distributed, "scan_work", said)
    assert scan(run, executor=Here()).findings == (died,)


def test_a_rank_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    run, _ = write_job(tmp_path / "run", planned(None, ranks=3, steps=3, layers=1, seed=1))
    (torn,) = (path for path in run.glob("processes/p-*-1001-*") if path.is_dir())
    (torn / "tensors.arrow").write_bytes(b"nothing of the kind")
    document = scan(run, executor=Here())
    assert not document.complete
    assert any(torn.name in line for line in document.summary["warnings"])


def test_a_worker_that_raises_costs_its_ranks_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned("nan_forward", ranks=3, steps=4, layers=1, seed=1)
    run, _ = write_job(tmp_path / "run", plan)
    work, (fault,) = distributed.scan_work, plan.faults

    def fails_once(task: bytes, asked: bytes) -> bytes:
        if b"p-node-1000-" in task and fault.rank != 0:
            raise MemoryError
        return work(task, asked)

    class Failing(Here):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            return super().submit(fails_once, *args, **kwargs)

    document = scan(run, executor=Failing())
    assert named(document, plan)
    assert document.complete == (fault.rank == 0)


def test_blocks_hold_every_rank_beside_the_first_of_its_groups() -> None:
    groups = {tuple(range(100)), *(tuple(range(part, 100, 10)) for part in range(10))}
    blocks = list(blocks_of(groups, range(100)))
    assert all(len(block) <= distributed.BLOCK + 1 for block in blocks)
    for group in groups:
        for rank in group:
            assert rank == group[0] or any({rank, group[0]} <= {*block} for block in blocks)
    assert list(blocks_of(groups, range(8))) == [tuple(range(8))]
    assert list(blocks_of(set(), [0])) == []
