# SPDX-License-Identifier: Apache-2.0
"""Losses that a port computes for the record alone: it goes back from a surrogate of the same
gradients, or gives the gradient itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import fitted, recorded
from torch import Tensor, nn

import opscope

BATCHES = fitted(13, steps=4, rows=10, wide=5, out=1)


def network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 1))


def original(_: str) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for rows, wanted in BATCHES:
        loss = nn.functional.smooth_l1_loss(model(rows), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


def surrogate(fault: str) -> None:
    model = network()
    for rows, wanted in BATCHES:
        made = model(rows)
        error = (made - wanted).detach()
        slope = error.clamp(-2 if fault else -1, 1)  # slope
        model.zero_grad()
        (slope * made).mean().backward()
        _stepped(model)
        small = error.abs().clamp(max=1)
        (small * (error.abs() - small / 2)).mean().item()


def seeded(fault: str) -> None:
    model = network()
    for rows, wanted in BATCHES:
        error = model(rows) - wanted
        slope = error.detach().clamp(-2 if fault else -1, 1)  # slope
        model.zero_grad()
        error.backward(slope / len(rows))
        _stepped(model)
        small = error.detach().abs().clamp(max=1)
        (small * (error.detach().abs() - small / 2)).mean().item()


def _stepped(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            gradient: Tensor | None = parameter.grad
            assert gradient is not None
            parameter.sub_(0.1 * gradient)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("original") / "run")


@pytest.mark.parametrize("port", [surrogate, seeded])
def test_another_way_to_the_same_gradients_is_silent(golden: Path, tmp_path: Path, port) -> None:
    document = opscope.compare(recorded(port, tmp_path / "run"), golden).document
    assert (document.verdict, document.findings) == ("clean", ())


@pytest.mark.parametrize("port", [surrogate, seeded])
def test_other_gradients_are_told(golden: Path, tmp_path: Path, port) -> None:
    assert opscope.compare(recorded(port, tmp_path / "run", "slope"), golden).findings
