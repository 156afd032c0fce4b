# SPDX-License-Identifier: Apache-2.0
"""Engines by name, and what becomes of workers that raise or die."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opscope.engine.executors import answers, executor_of
from opscope.errors import UnavailableError, UsageError


def double(task: bytes) -> bytes:
    """Twice the task; dies or raises where that is asked for."""
    if task == b"die":
        os._exit(9)
    if task == b"raise":
        raise ValueError(task)
    return task + task


@pytest.mark.parametrize("name", ["processes", "processes:0", "processes:x", "threads:2", "dask:h"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--executor"), executor_of(name):
        pass


def test_no_name_is_no_engine() -> None:
    with executor_of(None) as pool:
        assert pool is None


def test_a_cluster_that_does_not_answer_or_is_not_installed_is_said() -> None:
    with pytest.raises(UnavailableError), executor_of("dask://127.0.0.1:1"):
        pass


def test_answers_come_beside_their_tasks_and_a_failure_costs_one() -> None:
    with executor_of("processes:1") as pool:
        assert pool is not None
        found = dict(answers(pool, double, [b"a", b"raise", b"b"]))
    assert found == {b"a": b"aa", b"raise": "ValueError: b'raise'", b"b": b"bb"}


def test_a_worker_that_dies_is_said_of_every_task_that_was_not_answered(tmp_path: Path) -> None:
    with executor_of("processes:1") as pool:
        assert pool is not None
        found = dict(answers(pool, double, [b"die", b"a"]))
    assert all("terminated abruptly" in str(answer) for answer in found.values())
