# SPDX-License-Identifier: Apache-2.0
"""Rounding that grows until it is seen is nobody's fault; what leaps apart is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

ROWS, WIDE, STEPS, RATE, TURNS = 16, 8, 2, 3.9, 40


def begun() -> tuple[Tensor, Tensor]:
    """What both programs begin with: a weight, and a batch."""
    drawn = torch.Generator().manual_seed(7)
    return (torch.rand(WIDE, generator=drawn) * 0.5 + 0.25, torch.rand(ROWS, WIDE, generator=drawn))


class Original(nn.Module):
    """A map that doubles what is between two numbers, time and again."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(begun()[0])

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.weight
        for _ in range(TURNS):
            x = RATE * x * (1 - x)  # golden: turn
        return x.mean()


def original(_: str) -> None:
    model = Original()
    with torch.no_grad():
        for _ in range(STEPS):
            model(begun()[1])


class Ported(nn.Module):
    """The same, multiplied out."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.scale, self.fault = nn.Parameter(begun()[0]), fault

    def forward(self, x: Tensor) -> Tensor:
        x = self.scale * x
        for turn in range(TURNS):
            rate = RATE + (0.01 if self.fault == "rate" and turn == 1 else 0.0)
            x = torch.addcmul(x * rate, x, x, value=-rate)  # target: turn
        return x.sum() / x.numel()


def ported(fault: str) -> None:
    model = Ported(fault)
    with torch.no_grad():
        for _ in range(STEPS):
            model(begun()[1])


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("golden") / "run")


def test_rounding_that_grows_accuses_nobody(golden: Path, tmp_path: Path) -> None:
    document = opscope.compare(recorded(ported, tmp_path / "run"), golden).document
    assert not document.findings
    assert "rounding grows from call to call" in str(document.summary)


def test_what_leaps_apart_before_it_grows_is_told(golden: Path, tmp_path: Path) -> None:
    run = recorded(ported, tmp_path / "run", "rate")
    finding = opscope.compare(run, golden).document.findings[0]
    assert marked_line(__file__, "# target: turn") in told_lines(finding, "target")
    assert marked_line(__file__, "# golden: turn") in told_lines(finding, "golden")


class Shares(nn.Module):
    """Weighs two inputs by what of two weights is positive, which is one of them."""

    def __init__(self, *, ported: bool) -> None:
        super().__init__()
        self.weights, self.ported = nn.Parameter(torch.tensor([0.8, -0.3])), ported

    def forward(self, x: Tensor) -> Tensor:
        edge = torch.relu(self.weights)
        if self.ported:
            edge = edge * (1 / (edge.sum() + 1e-4))
            return torch.einsum("k,kbd->bd", edge, torch.stack([x, x.sin()])).square().mean()
        edge = edge / (edge.sum() + 1e-4)
        return (edge[0] * x + edge[1] * x.sin()).pow(2).mean()


def shares(fault: str) -> None:
    model = Shares(ported=bool(fault))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(begun()[1]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def test_what_is_left_of_a_gradient_behind_a_mask_is_as_far_apart_as_what_was_masked(
    tmp_path: Path,
) -> None:
    target = recorded(shares, tmp_path / "target", "ported")
    assert not opscope.compare(target, recorded(shares, tmp_path / "golden")).document.findings
