# SPDX-License-Identifier: Apache-2.0
"""A loss or gradients that leap in one step are a warning that names where the growth began;
learning is none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import opscope
from opscope.scan.gradients import jump_of


def warnings(program: Callable[[], object], place: Path) -> list[str]:
    with opscope.record(place / "run"):
        program()
    found: list[str] = opscope.scan(opscope.open_run(place / "run")).summary["warnings"]
    return [words for words in found if "leaps" in words]


def classify(kind: Any, rate: float, *, spoilt: int | None = None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5))
    optimizer = kind(model.parameters(), lr=rate)
    for step in range(3):
        data = torch.randn(6, 8) * (1e6 if step == spoilt else 1.0)
        loss = F.cross_entropy(model(data), torch.randint(5, (6,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_learning_rate_that_is_too_high_names_the_update(kind: Any, tmp_path: Path) -> None:
    (words,) = warnings(lambda: classify(kind, 1e4), tmp_path)
    assert "in step 0 to" in words
    assert "began in step 0" in words
    assert "~opt" in words
    assert "makes" in words


def test_data_out_of_scale_names_the_call_that_grew(tmp_path: Path) -> None:
    (words,) = warnings(lambda: classify(torch.optim.SGD, 1e-3, spoilt=2), tmp_path)
    assert "began in step 2: <root>:mul#1" in words


@pytest.mark.parametrize("rate", [1e-3, 0.5])
def test_learning_is_silent(rate: float, tmp_path: Path) -> None:
    assert warnings(lambda: classify(torch.optim.SGD, rate), tmp_path) == []


def test_what_counts_as_a_leap() -> None:
    assert jump_of([0, 1], [5.1, 3.5e9]) == 1
    assert jump_of([0, 1, 2], [5.1, 4e9, 4.0e9]) == 1
    assert jump_of([0, 1, 2], [1e-9, 0.5, 0.4]) is None  # small things grow
    assert jump_of([0, 5], [5.1, 3.5e9]) is None  # what lay between was not kept
    assert jump_of([0, 1, 2], [1e6, 10.0, 9e5]) is None
    assert jump_of([], []) is None
