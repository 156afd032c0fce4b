# SPDX-License-Identifier: Apache-2.0
"""One run of parts: what belongs together, what is refused, and that nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.run.run_rows import append_step

from opscope.errors import FormatError, UsageError
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.merge import merge
from opscope.run.store.reader import NativeRun
from opscope.run.store.writer import ProcessWriter

STATIC = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}


def part(
    directory: Path, ranks: list[int], job: dict[str, str] | None = None, *, world: int = 4
) -> Path:
    """What one node recorded: its launcher, which knows of no world, and its ranks."""
    run = create_run(directory)
    for rank in (None, *ranks):
        facts = process_facts(rank=rank or 0, world=None if rank is None else world)
        own = {} if rank is None else STATIC if job is None else job
        writer = ProcessWriter(run, msgspec.structs.replace(facts, environment=own))
        if rank is not None:
            append_step(writer, 0)
        writer.close(0)
    seal_run(run)
    return run


def content(run: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()
    }


def test_parts_make_one_whole_run_in_whatever_order_and_however_often(tmp_path: Path) -> None:
    nodes = [part(tmp_path / "a", [0, 1]), part(tmp_path / "b", [2, 3])]
    before = [content(node) for node in nodes]
    run = NativeRun(merge(nodes, tmp_path / "run"))
    assert run.problems == ()
    assert run.info.sealed
    numbers = [process.process for process in run.processes]
    assert numbers == list(range(6))
    ranks = {process.process: process.rank for process in run.processes}
    seen = [
        (int(process), int(rank))
        for batch in run.columns("calls", ["process", "rank"])
        for process, rank in zip(batch["process"], batch["rank"], strict=True)
    ]
    assert len(seen) == 16
    assert {ranks[process] for process, _ in seen} == {0, 1, 2, 3}
    assert all(ranks[process] == rank for process, rank in seen)
    merge([*nodes[::-1], nodes[0]], tmp_path / "other")
    assert content(tmp_path / "other") == content(tmp_path / "run")
    merge(nodes[::-1], tmp_path / "run")
    merge([nodes[0], tmp_path / "run"], tmp_path / "run")
    assert content(tmp_path / "run") == content(tmp_path / "other")
    assert [content(node) for node in nodes] == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "other", "run"]


def test_a_missing_part_is_said_and_added_when_it_comes(tmp_path: Path) -> None:
    nodes = [part(tmp_path / "a", [0, 1]), part(tmp_path / "b", [2, 3])]
    out = merge(nodes[1:], tmp_path / "run")
    # its launcher has rank 0 for want of another, and is no record of rank 0
    assert NativeRun(out).problems == (f"{out}: no records of rank 0, 1 of 4",)
    merge(nodes, out)
    assert NativeRun(out).problems == ()
    merge(nodes, tmp_path / "whole")
    assert content(out) == content(tmp_path / "whole")


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (
            {"MASTER_ADDR": "node0", "MASTER_PORT": "1"},
            {"MASTER_ADDR": "node0", "MASTER_PORT": "2"},
        ),
        ({**STATIC, "OPSCOPE_JOB": "7"}, {**STATIC, "OPSCOPE_JOB": "8"}),
        ({**STATIC, "OPSCOPE_JOB": "7"}, STATIC),
        ({**STATIC, "SLURM_JOB_ID": "7"}, {**STATIC, "SLURM_JOB_ID": "8"}),
        ({"TORCHELASTIC_RUN_ID": "none"}, {"TORCHELASTIC_RUN_ID": "none"}),
        ({"TORCHELASTIC_RUN_ID": "***"}, {"TORCHELASTIC_RUN_ID": "***"}),
        ({}, {}),
    ],
)
def test_a_part_of_another_job_is_refused(
    tmp_path: Path, mine: dict[str, str], theirs: dict[str, str]
) -> None:
    nodes = [part(tmp_path / "a", [0, 1], mine), part(tmp_path / "b", [2, 3], theirs)]
    with pytest.raises(UsageError, match="OPSCOPE_JOB"):
        merge(nodes, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        # the user's word is enough, whatever name each node has for the first one
        ({"OPSCOPE_JOB": "7", "MASTER_ADDR": "10.0.0.1"}, {"OPSCOPE_JOB": "7"}),
        ({"PMIX_NAMESPACE": "prte-1@1"}, {"PMIX_NAMESPACE": "prte-1@1"}),
        ({"TORCHELASTIC_RUN_ID": "a"}, {"TORCHELASTIC_RUN_ID": "a", "MASTER_PORT": "1"}),
    ],
)
def test_a_part_of_the_same_job_is_taken(
    tmp_path: Path, mine: dict[str, str], theirs: dict[str, str]
) -> None:
    nodes = [part(tmp_path / "a", [0, 1], mine), part(tmp_path / "b", [2, 3], theirs)]
    assert NativeRun(merge(nodes, tmp_path / "run")).problems == ()


def test_a_rank_twice_and_another_world_are_refused(tmp_path: Path) -> None:
    first = part(tmp_path / "a", [0, 1])
    with pytest.raises(UsageError, match="has rank 1, which"):
        merge([first, part(tmp_path / "b", [1, 2])], tmp_path / "run")
    with pytest.raises(UsageError, match="two jobs"):
        merge([first, part(tmp_path / "c", [2, 3], world=8)], tmp_path / "run")


def test_ranks_of_a_restarted_job_may_move(tmp_path: Path) -> None:
    attempts = [{**STATIC, "TORCHELASTIC_RESTART_COUNT": str(number)} for number in range(2)]
    died = part(tmp_path / "a", [0, 1], attempts[0])
    stayed = part(tmp_path / "b", [2, 3], attempts[0])
    other = part(tmp_path / "b2", [0, 1], attempts[1])
    for directory in (other / "processes").glob("p-*"):
        directory.rename(stayed / "processes" / directory.name)
    came = part(tmp_path / "c", [2, 3], attempts[1])
    assert NativeRun(merge([died, came, stayed], tmp_path / "run")).problems == ()


def test_nothing_but_a_merged_run_is_added_to(tmp_path: Path) -> None:
    first, second = part(tmp_path / "a", [0, 1]), part(tmp_path / "b", [2, 3])
    with pytest.raises(UsageError, match="was not merged"):
        merge([second], first)
    with pytest.raises(FormatError, match="no such run"):
        merge([first, tmp_path / "gone"], tmp_path / "run")
    with pytest.raises(UsageError, match="nothing to merge"):
        merge([], tmp_path / "run")


def test_links_that_a_part_holds_are_not_followed(tmp_path: Path) -> None:
    first, second = part(tmp_path / "a", [0, 1]), part(tmp_path / "b", [2, 3])
    (tmp_path / "secret").write_text("x")
    (directory, *_) = (second / "processes").glob("p-*")
    (directory / "extremes.arrow").symlink_to(tmp_path / "secret")
    (directory / "process.json").unlink()
    (directory / "process.json").symlink_to(tmp_path / "secret")
    merge([first, second], tmp_path / "run")
    assert not any(path.is_symlink() for path in (tmp_path / "run").rglob("*"))
    assert b"x" not in content(tmp_path / "run").values()
