# SPDX-License-Identifier: Apache-2.0
"""Trainers of the world with opscope's callbacks, in the interpreter that OPSCOPE_TRAINERS_PYTHON
names.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import opscope
from opscope.run.finding import Finding

PYTHON = os.environ.get("OPSCOPE_TRAINERS_PYTHON")
NET = Path(__file__).with_name("trainers_net.py")
SOURCE = Path(__file__).parents[2] / "src"
TRAINERS = ("transformers", "lightning", "keras", "ignite", "accelerate")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_TRAINERS_PYTHON names no interpreter"),
]


def train(*words: str, place: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OPSCOPE")}
    environment.update(PYTHONPATH=str(SOURCE), OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    done = subprocess.run(
        [str(PYTHON), str(NET), *words],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done


def origin(run: Path) -> Finding | None:
    document = opscope.scan(run)
    return document.findings[0] if document.findings else None


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_training_stops_at_the_operator_that_broke_it(trainer: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = train(trainer, "faulty", "stop", str(run), place=tmp_path)
    assert done.stdout.splitlines()[-2] == "4", done.stderr
    found = origin(run)
    assert found is not None
    assert (found.kind, found.step) == ("overflow-origin", 3)
    assert found.op in {"aten::mul.Tensor", "aten::multiply.Tensor"}
    assert found.source is not None
    assert found.source.startswith(str(NET))
    (named,) = opscope.scan(run).summary["trainer"]["0"].items()
    assert named[0] == "step 3"
    assert "3" in named[1] or "4" in named[1]
    assert "opscope scan" in done.stderr


@pytest.mark.parametrize("trainer", TRAINERS)
def test_an_overflow_that_the_program_guards_against_stops_nothing(
    trainer: str, tmp_path: Path
) -> None:
    alone = train(trainer, "guarded", "stop", "", place=tmp_path)
    run = tmp_path / "run"
    watched = train(trainer, "guarded", "stop", str(run), place=tmp_path)
    assert watched.stdout.splitlines()[-2:] == alone.stdout.splitlines()[-2:]
    assert watched.stdout.splitlines()[-2] == "6"
    assert origin(run) is None
    assert opscope.scan(run).summary["steps"] >= 6


@pytest.mark.parametrize("trainer", ["transformers", "lightning", "ignite"])
def test_a_training_goes_on_without_the_update_that_would_break_it(
    trainer: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = train(trainer, "faulty", "skip", str(run), place=tmp_path)
    bare = train(trainer, "faulty", "keep", "", place=tmp_path)
    batches, parameters = done.stdout.splitlines()[-2:]
    assert batches == "6", done.stderr
    assert float.fromhex(parameters) != 0.0
    assert float.fromhex(bare.stdout.splitlines()[-1]) == 0.0  # NaN each, which nansum leaves out
    found = origin(run)
    assert found is not None
    assert (found.kind, found.step) == ("overflow-origin", 3)
