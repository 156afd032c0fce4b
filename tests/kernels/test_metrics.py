# SPDX-License-Identifier: Apache-2.0
"""A user's own metric: found by its import path, marked or not, and never the end of a
comparison.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes  # noqa: F401
import numpy as np
import pytest

from opscope.errors import UsageError
from opscope.kernels.metrics import find_metrics

SOURCE = """
import numpy as np
from opscope.kernels.metrics import metric

@metric("SNR")
def signal(target, golden):
    return 10 * np.log10(np.sum(golden**2) / np.sum((target - golden) ** 2))

@metric("Worst")
def worst(target, golden):
    return np.max(np.abs(target - golden))

def plain(target, golden):
    return (target.dtype == np.float64) + target.ndim

def broken(target, golden):
    raise ValueError("no")

NUMBER = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_metrics_of_a_user.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return "own_metrics_of_a_user"


def test_found_by_path_or_by_mark(module: str) -> None:
    target, golden = np.array([[1.0, 2.5]], np.float16), np.array([[1.0, 2.0]], "bfloat16")
    (plain,) = find_metrics([f"{module}:plain"])
    assert (plain.name, plain(target, golden)) == ("plain", 3.0)
    marked = find_metrics([module])
    assert [(one.name, one(target, golden)) for one in marked] == [
        ("SNR", pytest.approx(13.0103)),
        ("Worst", 0.5),
    ]
    assert [one.name for one in find_metrics([f"{module}:worst", f"{module}:plain"])] == [
        "Worst",
        "plain",
    ]


def test_an_error_of_a_metric_is_told_in_its_cell(module: str) -> None:
    (broken,) = find_metrics([f"{module}:broken"])
    assert broken(np.zeros(2), np.zeros(2)) == "ValueError: no"


@pytest.mark.parametrize(
    "path",
    [
        "nothing_of_this_name",
        "own_metrics_of_a_user:gone",
        "own_metrics_of_a_user:NUMBER",
        "math",
        ":",
        "",
    ],
)
def test_what_cannot_be_found_is_said(module: str, path: str) -> None:
    with pytest.raises(UsageError, match="--metric"):
        find_metrics([path])
