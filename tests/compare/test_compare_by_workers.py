# SPDX-License-Identifier: Apache-2.0
"""A comparison by workers, each of which sees some ranks of both runs, says what one process says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.compare.test_compare_rows import ranks
from tests.scale.job import Plan, planned, rank_writer, write_job

from opscope.cli import main
from opscope.compare import distributed
from opscope.compare.api import Policy, compare
from opscope.compare.distributed import compare_by
from opscope.compare.pair.mapping import Mapping
from opscope.engine.executors import InThisProcess
from opscope.errors import UsageError
from opscope.formats.registry import open_run
from opscope.report.compare_terminal import print_comparison
from opscope.report.json import json_text
from opscope.run.arrow import encode_rows
from opscope.run.finding import Document
from opscope.run.query import records
from opscope.run.store.layout import create_run, seal_run
from opscope.run.store.reader import NativeRun


def by_workers(target: Path, golden: Path, policy: Policy | None = None) -> Document:
    return compare_by(InThisProcess(), open_run(target), open_run(golden), policy)


def plain(document: Document) -> Any:
    return json.loads(json_text(document))


def stored(to: Path, run: Any) -> Path:
    """The rows of a run in memory as opscope's own, each rank a process."""
    made = create_run(to, command=["torchrun", "train.py"])
    rows = {table: list(records(run, table)) for table in ("calls", "tensors")}
    owner = {call.process: call.rank for call in rows["calls"]}
    for process, rank in sorted(owner.items()):
        writer = rank_writer(made, rank, len(owner))
        for table, found in rows.items():
            own = [
                msgspec.structs.replace(row, process=writer.process.process)
                for row in found
                if row.process == process
            ]
            writer.append(table, encode_rows(table, own), step=0)
        writer.end_step(0)
        writer.close(exit_code=0)
    seal_run(made)
    return made


@pytest.mark.parametrize(
    "fault", [None, "half_overflow", "nan_reduced", "no_exchange", "other_result"]
)
def test_workers_say_what_one_process_says(fault: str | None, tmp_path: Path) -> None:
    golden, _ = write_job(tmp_path / "golden", Plan(ranks=3, steps=4, layers=2, seed=7))
    target, _ = write_job(tmp_path / "run", planned(fault, ranks=3, steps=4, layers=2, seed=7))
    alone = compare(target, golden).document
    assert plain(by_workers(target, golden)) == plain(alone)
    assert alone.verdict == ("clean" if fault is None else "found")


def test_what_a_rank_of_another_worker_sent_is_no_origin(tmp_path: Path) -> None:
    target = stored(tmp_path / "a", ranks((1, 8), 9))
    golden = stored(tmp_path / "b", ranks((1, 2), 3))
    document = by_workers(target, golden)
    assert [(finding.rank, finding.op) for finding in document.findings] == [
        (1, "aten::mm.default")
    ]
    assert plain(document) == plain(compare(target, golden).document)


def test_a_collective_that_sums_wrongly_is_one(tmp_path: Path) -> None:
    document = by_workers(
        stored(tmp_path / "a", ranks((1, 2), 9)), stored(tmp_path / "b", ranks((1, 2), 3))
    )
    assert {finding.op for finding in document.findings} == {"c10d::allreduce_"}


def test_a_rank_that_cannot_be_read_is_said_and_the_others_are_compared(tmp_path: Path) -> None:
    golden, _ = write_job(tmp_path / "golden", Plan(ranks=3, steps=4, layers=1, seed=7))
    plan = planned("other_result", ranks=3, steps=4, layers=1, seed=7)
    target, _ = write_job(tmp_path / "run", plan)
    (name,) = NativeRun(target).directories_by_rank[(plan.faults[0].rank + 1) % 3]
    (target / "processes" / name / "process.json").write_text("nothing of the kind")
    document = by_workers(target, golden)
    assert [finding.rank for finding in document.findings[:1]] == [plan.faults[0].rank]
    assert not document.complete


def test_a_worker_that_died_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    golden, _ = write_job(tmp_path / "golden", Plan(ranks=2, steps=3, layers=1, seed=7))

    def dies(task: bytes, asked: bytes) -> bytes:
        raise MemoryError

    monkeypatch.setattr(distributed, "compare_work", dies)
    document = by_workers(golden, golden)
    assert not document.complete
    assert any("rank 0 was not compared" in line for line in document.summary["warnings"])
    print_comparison(document)
    assert "rank 1 was not compared" in " ".join(capsys.readouterr().out.split())


def test_other_ranks_and_third_runs_are_refused(tmp_path: Path) -> None:
    two, _ = write_job(tmp_path / "two", Plan(ranks=2, steps=3, layers=1, seed=7))
    one, _ = write_job(tmp_path / "one", Plan(ranks=1, steps=3, layers=1, seed=7))
    with pytest.raises(UsageError, match="is of 2 ranks"):
        by_workers(two, one)
    for policy in (Policy(mapping=Mapping()), Policy(noise=open_run(one))):
        with pytest.raises(UsageError, match="no third run"):
            by_workers(one, one, policy)
    with pytest.raises(UsageError, match="opscope's own runs"):
        compare_by(InThisProcess(), ranks((1, 2), 3), open_run(one))


def test_the_command_takes_an_executor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden, _ = write_job(tmp_path / "golden", Plan(ranks=2, steps=3, layers=1, seed=7))
    target, _ = write_job(
        tmp_path / "run", planned("other_result", ranks=2, steps=3, layers=1, seed=7)
    )
    command = ["compare", str(target), str(golden), "--json"]
    assert main([*command, "--executor", "processes:2"]) == 1
    by_two = json.loads(capsys.readouterr().out)
    assert main(command) == 1
    assert by_two == json.loads(capsys.readouterr().out)
    assert main([*command, "--executor", "processes:2", "-o", str(tmp_path / "rows.csv")]) == 2
