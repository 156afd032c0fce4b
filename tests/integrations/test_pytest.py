# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin in suites of its own, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import opscope

pytestmark = pytest.mark.zoo

SUITE = """
import pytest
import torch


def train(scale, guarded=False):
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for step in range(3):
        h = net(torch.ones(2, 4) * (scale if step == 1 else 1))
        y = torch.where(h.abs() > 1e9, torch.zeros_like(h), h * h) if guarded else h * h
        optimizer.zero_grad()
        y.mean().backward()
        optimizer.step()
    return net


def test_breaks_and_asserts_nothing():
    train(1e30)


def test_breaks_and_fails_of_itself():
    assert train(1e30).weight.isfinite().all()


def test_healthy():
    assert train(1).weight.isfinite().all()


def test_guarded():
    train(1e30, guarded=True)


def test_of_infinities_that_trains_nothing():
    assert torch.exp(torch.tensor(1e5)).isinf()


@pytest.mark.opscope_off
def test_that_is_not_watched():
    train(1e30)


@pytest.mark.parametrize("text", ["a/../b", "ü"])
def test_names(text):
    train(1)
"""

GOLDEN = """
import os
import torch


def test_training(opscope_golden):
    with opscope_golden:
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=float(os.environ["RATE"]))
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
"""


CUT_SHORT = """
import pytest
import torch


def train():
    torch.nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()


@pytest.fixture
def cut():
    def now():
        from opscope.record.active import active

        active.session.fail(OSError("the disk is full"))

    return now


def test_watched(cut):
    train()
    cut()
    train()


def test_golden(opscope_golden, cut):
    with opscope_golden:
        train()
        cut()
        train()
"""


def suite(
    place: Path, text: str, *words: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    (place / "test_suite.py").write_text(text, encoding="utf-8")
    (place / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    keep = {key: value for key, value in os.environ.items() if not key.startswith("OPSCOPE")}
    for name in (
        "CI",
        "BUILD_NUMBER",
        "PYTEST_ADDOPTS",
    ):  # with these pytest's own summary says more
        keep.pop(name, None)
    keep.update(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", OMP_NUM_THREADS="1", **variables)
    command = [sys.executable, "-m", "pytest", "-p", "opscope.integrations.pytest"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", "-v", *words],
        cwd=place,
        env=keep,
        capture_output=True,
        text=True,
        timeout=300,
    )


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {
        line.split()[0].rpartition("::")[2]: line.split()[1]
        for line in done.stdout.splitlines()
        if line.startswith("test_suite.py::")
    }


@pytest.mark.sample
def test_a_training_that_breaks_fails_its_test(tmp_path: Path) -> None:
    done = suite(tmp_path, SUITE, "--opscope")
    found = outcomes(done)
    assert found.pop("test_breaks_and_asserts_nothing") == "FAILED", done.stdout
    assert found.pop("test_breaks_and_fails_of_itself") == "FAILED"
    assert set(found.values()) == {"PASSED"}
    assert len(found) == 6
    assert done.stdout.count("overflow-origin (proven): step 1, rank 0, aten::mul.Tensor") == 2
    assert "test_suite.py:12" in done.stdout
    kept = sorted(path.name for path in (tmp_path / "runs" / "pytest").iterdir())
    assert kept == [
        "test_suite.py-test_breaks_and_asserts_nothing",
        "test_suite.py-test_breaks_and_fails_of_itself",
    ]
    assert opscope.scan(tmp_path / "runs" / "pytest" / kept[0]).findings


def test_a_suite_whose_runs_cannot_be_written_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    done = suite(tmp_path, SUITE, "--opscope", "--opscope-runs", "file/runs")
    assert list(outcomes(done).values()).count("FAILED") == 1
    assert "opscope: 7 tests were not watched to their end: " in done.stdout


def test_a_recording_that_ends_in_the_middle_of_its_test_is_counted(tmp_path: Path) -> None:
    done = suite(tmp_path, CUT_SHORT, "--opscope")
    assert set(outcomes(done).values()) == {"PASSED"}
    told = "opscope: 2 tests were not watched to their end: OSError: the disk is full"
    assert told in done.stdout
    assert not list((tmp_path / "opscope_golden").iterdir())


def test_without_the_option_nothing_is_watched(tmp_path: Path) -> None:
    found = outcomes(suite(tmp_path, SUITE))
    assert [name for name, word in found.items() if word == "FAILED"] == [
        "test_breaks_and_fails_of_itself"
    ]
    assert not (tmp_path / "runs").exists()


def test_a_golden_run_is_recorded_once_and_compared_with_after(tmp_path: Path) -> None:
    golden = tmp_path / "opscope_golden" / "test_suite.py-test_training"
    assert outcomes(suite(tmp_path, GOLDEN, RATE="0.1")) == {"test_training": "PASSED"}
    assert (golden / "run.json").is_file()
    assert outcomes(suite(tmp_path, GOLDEN, RATE="0.1")) == {"test_training": "PASSED"}
    assert not list((tmp_path / "runs" / "pytest").iterdir())
    done = suite(tmp_path, GOLDEN, RATE="0.2")
    assert outcomes(done) == {"test_training": "FAILED"}
    assert "opscope compare" in done.stdout
    assert outcomes(suite(tmp_path, GOLDEN, "--opscope-update", RATE="0.2")) == {
        "test_training": "PASSED"
    }
    assert outcomes(suite(tmp_path, GOLDEN, RATE="0.2")) == {"test_training": "PASSED"}


@pytest.mark.sample
def test_loading_the_plugin_loads_nothing_of_the_house() -> None:
    code = (
        "import sys, opscope.integrations.pytest\n"
        "print(sorted(name for name in sys.modules if name in ('torch', 'numpy', 'msgspec')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
