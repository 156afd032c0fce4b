# SPDX-License-Identifier: Apache-2.0
"""Trainings that go away from golden: as fast as rounding takes another run, or faster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.compare.verdict.drift import FACTOR, LASTING, Written, drift, strayed
from opscope.run.keys import NONE

PROGRAM = Path(__file__).with_name("drifting.py")
STEPS = 80


def curve(values: list[float], *, first: int = 0) -> Written:
    """One parameter that is written once a step."""
    steps = np.arange(first, first + len(values))
    return Written(
        steps, np.full(len(values), 7, np.uint64), steps.copy(), np.array(values, np.float64)
    )


@given(
    noise=st.lists(st.floats(1e-7, 1.0), min_size=1, max_size=50),
    times=st.floats(0.0, FACTOR * 0.99),
)
def test_within_the_noise_nothing_leaves_it(noise: list[float], times: float) -> None:
    so_far = np.maximum.accumulate(noise)
    assert drift(curve((so_far * times).tolist()), curve(noise)).leaves == NONE


@given(
    before=st.lists(st.floats(0.0, FACTOR * 0.99), max_size=20),
    after=st.lists(st.floats(FACTOR * 1.01, 1e3), min_size=LASTING, max_size=20),
)
def test_where_it_leaves_the_noise_to_the_end(before: list[float], after: list[float]) -> None:
    target = curve([each * 1e-6 for each in (*before, *after)])
    found = drift(target, curve([1e-6] * len(target.step)))
    assert found.leaves == len(before)


def test_a_target_that_is_away_for_a_few_steps_is_let_alone() -> None:
    away = LASTING - 1
    noise = curve([1e-6] * 20)
    assert drift(curve([1e-4] * away + [1e-6] * (20 - away)), noise).leaves == NONE
    assert drift(curve([1e-6] * (20 - away) + [1e-4] * away), noise).leaves == NONE
    assert drift(curve([1e-6] * 5 + [1e-4] * LASTING + [1e-6] * 5), noise).leaves == 5


def test_a_run_that_rounds_as_golden_does_is_no_noise() -> None:
    assert drift(curve([1e-4] * 20), curve([0.0] * 19 + [1e-6])).alike


def test_where_the_noise_run_is_another_training_nothing_is_judged() -> None:
    assert drift(curve([0.9] * 20), curve([0.05] * 20)).leaves == NONE
    found = drift(curve([1e-4] * 10 + [0.9] * 10), curve([1e-6] * 10 + [0.05] * 10))
    assert (found.leaves, found.judged) == (0, 10)


def test_only_steps_that_all_have_count() -> None:
    found = drift(curve([1e-4] * 10), curve([1e-6] * 10, first=6))
    assert found.steps.tolist() == [6, 7, 8, 9]
    assert not len(drift(curve([1.0]), curve([1.0], first=9)).steps)


def test_the_parameter_that_strayed_most_comes_first() -> None:
    step, name = np.array([0, 0, 1, 1]), np.array([1, 2, 1, 2], np.uint64)
    noise = Written(step, name, np.arange(4), np.array([1e-6, 1e-6, 1e-6, 1e-5]))
    target = Written(step, name, np.arange(4), np.array([1e-6, 1e-6, 1e-4, 2e-4]))
    assert [row for row, _ in strayed(target, noise, 1, most=2)] == [2, 3]


def recorded(folder: Path, name: str, *words: str) -> str:
    command = [sys.executable, "-m", "opscope", "run", "-o", name, "--", sys.executable]
    done = subprocess.run(
        [*command, str(PROGRAM), *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drift")
    for name, words in {
        "golden": ("as-is",),
        "noise": ("rounding", "1"),
        "healthy": ("rounding", "2"),
        "biased": ("bias",),
    }.items():
        recorded(folder, name, *words, str(STEPS))
    return folder


def compared(
    folder: Path, target: str, *words: str, golden: str = "golden"
) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "opscope", "compare", target, golden, "--json", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.zoo
def test_another_seed_of_rounding_does_not_leave_the_noise(runs: Path) -> None:
    code, document = compared(runs, "healthy", "--noise-run", "noise")
    drifting = document["summary"]["drift"]
    assert (code, drifting["leaves"], document["findings"]) == (0, None, [])
    assert 0 < drifting["most"] < FACTOR
    assert drifting["steps"] == list(range(STEPS))
    assert drifting["target"][-1] > drifting["target"][0]


@pytest.mark.zoo
def test_a_kernel_that_is_off_by_less_than_rounding_allows_is_told_by_where_it_leads(
    runs: Path,
) -> None:
    """Each call agrees; only the bias of all of them, step after step, is more than rounding."""
    assert compared(runs, "biased")[0] == 0
    code, document = compared(runs, "biased", "--noise-run", "noise")
    (finding,) = document["findings"]
    assert (code, finding["kind"], finding["confidence"]) == (1, "drift", "suspected")
    assert finding["step"] == document["summary"]["drift"]["leaves"] < STEPS / 2
    assert "as far from golden as rounding took the noise run" in finding["reasons"][0]


@pytest.mark.zoo
def test_parameters_that_drifted_before_the_first_kept_step_are_no_origin(runs: Path) -> None:
    """Without a noise run nothing tells them from parameters that never were the same: that is said
    and accuses nobody.
    """
    for name, words in {
        "late": ("as-is",),
        "later": ("rounding", "2"),
        "noisy": ("rounding", "1"),
    }.items():
        recorded(runs, name, *words, "130")
    (code, alone), (again, beside) = (
        compared(runs, "later", *words, golden="late") for words in ((), ("--noise-run", "noisy"))
    )
    assert (code, again) == (3, 0)
    assert not alone["findings"]
    assert any("--noise-run tells" in warning for warning in alone["summary"]["warnings"])
    assert any("left out" in warning for warning in beside["summary"]["warnings"])


@pytest.mark.zoo
def test_another_training_is_no_noise_run_and_clears_nothing(runs: Path) -> None:
    recorded(runs, "another", "seed", "3", str(STEPS))
    _, alone = compared(runs, "another")
    code, document = compared(runs, "another", "--noise-run", "another")
    assert code == 1
    assert len(document["findings"]) == len(alone["findings"])
    assert any("another training than golden" in each for each in document["summary"]["warnings"])


@pytest.mark.zoo
def test_a_noise_run_without_a_common_step_is_said(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "golden").symlink_to(runs / "golden")
    recorded(tmp_path, "none", "as-is", "0")
    code, document = compared(tmp_path, "golden", "--noise-run", "none")
    assert code == 3
    assert any("--noise-run" in warning for warning in document["summary"]["warnings"])
