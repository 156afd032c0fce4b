# SPDX-License-Identifier: Apache-2.0
"""`opscope compare` of a MindSpore run with a PyTorch recording of the same LeNet: silent where
they agree, the first operator where not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opscope.compare.api import compare

PYTHON = os.environ.get("OPSCOPE_MINDSPORE_PYTHON")
GRAPH, TORCH = (Path(__file__).with_name(f"lenet_{name}.py") for name in ("mindspore", "torch"))
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_MINDSPORE_PYTHON names no interpreter"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the PyTorch runs that all tests compare with; the first makes the weights."""
    folder = tmp_path_factory.mktemp("lenet")
    record(folder, "torch", "0")
    record(folder, "trained", "0", "0.1")
    return folder


def record(
    folder: Path, name: str, *words: str, python: str = sys.executable, values: str = "full"
) -> Path:
    program = TORCH if python == sys.executable else GRAPH
    command = [
        sys.executable,
        "-m",
        "opscope",
        "run",
        "-o",
        str(folder / name),
        "--values",
        values,
        "--",
    ]
    done = subprocess.run(
        [*command, python, str(program), str(folder / "weights.npz"), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / name


def line(text: str) -> int:
    return next(
        number
        for number, content in enumerate(GRAPH.read_text().splitlines(), 1)
        if text in content
    )


@pytest.mark.parametrize("values", ["full", "none"])
def test_one_model_is_clean(place: Path, values: str) -> None:
    document = compare(
        record(place, f"same-{values}", "0", python=str(PYTHON), values=values), place / "torch"
    ).document
    assert document.findings == ()
    assert document.complete
    assert document.summary["calls"]["matched"] == document.summary["calls"]["target"] == 9


@pytest.mark.parametrize("values", ["full", "none"])
def test_another_padding_is_named_at_its_line(place: Path, values: str) -> None:
    first = compare(
        record(place, f"padded-{values}", "2", python=str(PYTHON), values=values), place / "torch"
    ).first()
    assert first is not None
    assert (first.kind, first.op, first.module) == ("divergence-origin", "Conv2D", "conv2")
    assert first.source == f"{GRAPH}:{line('self.relu(self.conv2(x))')}"
    assert first.reasons[0] == "argument padding is [2, 2], golden has [0, 0]"


def test_two_steps_of_training_are_clean_and_another_rate_is_the_optimizers(place: Path) -> None:
    document = compare(
        record(place, "trained-alike", "0", "0.1", python=str(PYTHON)), place / "trained"
    ).document
    assert document.findings == ()
    assert document.summary["calls"]["only_target"] == 0
    first = compare(
        record(place, "trained-faster", "0", "0.2", python=str(PYTHON)), place / "trained"
    ).first()
    assert first is not None
    assert (first.kind, first.op, first.phase, first.step) == (
        "divergence-origin",
        "ApplyMomentum",
        "optimizer",
        0,
    )
