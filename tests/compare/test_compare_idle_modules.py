# SPDX-License-Identifier: Apache-2.0
"""Modules that give what they were given, of which only one program has some."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import opscope


class Skipped(nn.Module):
    """A path that is dropped by chance: by none, where the rate is 0."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x) if self.rate else x


def train(*idle: nn.Module) -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(8, 16), nn.Linear(16, 4)
    model = nn.Sequential(first, nn.ReLU(), *idle, last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(step))
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def compared(folder: Path, *idle: nn.Module) -> tuple[opscope.Finding, ...]:
    with opscope.record(folder / "golden"):
        train()
    with opscope.record(folder / "target"):
        train(*idle)
    return opscope.compare(folder / "target", folder / "golden").findings


@pytest.mark.parametrize(
    "idle", [nn.Dropout(0.0), nn.Identity(), Skipped(0.0), nn.Sequential(nn.Dropout(0.0))], ids=repr
)
def test_a_module_that_gives_what_it_was_given_is_no_difference(
    idle: nn.Module, tmp_path: Path
) -> None:
    assert compared(tmp_path, idle) == ()


@pytest.mark.parametrize("idle", [nn.Dropout(0.3), Skipped(0.5), nn.Hardtanh()], ids=repr)
def test_one_that_computes_is(idle: nn.Module, tmp_path: Path) -> None:
    assert compared(tmp_path, idle)
