# SPDX-License-Identifier: Apache-2.0
"""Weights that a first batch starts in the midst of a forward pass, and numbers that are the same in
each row of a batch.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

ROWS, WIDE, STEPS, RATE = 6, 8, 2, 0.01


def begun() -> list[Tensor]:
    """What both programs begin with."""
    drawn = torch.Generator().manual_seed(7)
    shapes = [(WIDE, WIDE), (WIDE,), (WIDE,)]
    return [torch.randn(shape, generator=drawn) * 0.5 for shape in shapes]


def batches() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(8)
    return [torch.randn(ROWS, WIDE, generator=drawn) * 3 + 1 for _ in range(STEPS)]


class Original(nn.Module):
    """A flow of one layer, which scales what it reads to a deviation of 1 when it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.shift, self.scale = (nn.Parameter(one) for one in begun())
        self.started = False

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.tanh(x @ self.mix)
        if not self.started:
            self.shift.data.copy_(-x.detach().mean(0))
            self.scale.data.copy_(torch.log(1 / (x.detach().std(0) + 1e-6)))
            self.started = True
        return (x + self.shift) * self.scale.exp(), WIDE * self.scale.sum()


def original(_: str) -> None:
    model = Original()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for x in batches():
        z, volume = model(x)
        loss = -((torch.zeros(ROWS) + volume) - 0.5 * z.square().sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def ported(fault: str) -> None:
    """The same by functions, with variances."""
    mix, shift, scale = (one.requires_grad_() for one in begun())
    optimizer = torch.optim.SGD([mix, shift, scale], lr=RATE)
    for number, x in enumerate(batches()):
        h = torch.tanh(torch.einsum("bi,io->bo", x, mix))
        if not number:
            with torch.no_grad():
                spread = h.var(0)
                spread = spread if fault == "spread" else spread.sqrt()
                shift.copy_(-h.mean(0))
                scale.copy_(-torch.log(spread + 1e-6))  # spread
        z = (h + shift) * torch.exp(scale)
        volume = scale.sum() if fault == "volume" else WIDE * scale.sum()  # volume
        each = torch.zeros(ROWS)
        each = each + volume
        each = each - (z**2).sum(1) / 2
        optimizer.zero_grad()
        (-each).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("original") / "run")


def test_a_healthy_port_is_silent(golden: Path, tmp_path: Path) -> None:
    found = opscope.compare(recorded(ported, tmp_path / "run"), golden).document
    assert (found.verdict, found.complete, found.findings) == ("clean", True, ())


@pytest.mark.parametrize("fault", ["spread", "volume"])
def test_a_fault_is_named_within_its_lines(golden: Path, tmp_path: Path, fault: str) -> None:
    first = opscope.compare(recorded(ported, tmp_path / "run", fault), golden).findings[0]
    assert first.step == 0
    assert marked_line(__file__, f"# {fault}") in told_lines(first, "target")
