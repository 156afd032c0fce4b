# SPDX-License-Identifier: Apache-2.0
"""Nodes of graphs one after the other beside tables that are filled up to one size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import opscope

SIZES, MOST, KINDS, WIDE, STEPS = (3, 5, 2, 6), 6, 7, 8, 2


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        held = torch.Generator().manual_seed(3)
        shapes = {"kinds": (KINDS, WIDE), "up": (WIDE, WIDE), "down": (WIDE, WIDE), "out": (WIDE,)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape, generator=held) * 0.5))


def nodes(step: int) -> list[Tensor]:
    """The kinds of the nodes of each graph."""
    held = torch.Generator().manual_seed(step)
    return [torch.randint(0, KINDS, (size,), generator=held) for size in SIZES]


class Listed(Weights):
    """Nodes of all graphs one after the other."""

    def forward(self, kinds: Tensor, graph: Tensor) -> Tensor:
        x = self.kinds[kinds]
        for weight in (self.up, self.down):
            centred = x @ weight
            x = torch.relu(centred - centred.mean(0)) + x
        pooled = torch.zeros(len(SIZES), WIDE).index_add(0, graph, x)
        return pooled / torch.bincount(graph)[:, None] @ self.out


class Padded(Weights):
    """A table with a row for each graph, and what tells which of its places are nodes."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault

    def forward(self, kinds: Tensor, there: Tensor) -> Tensor:
        x = self.kinds[kinds]
        for weight in (self.up, self.down):
            centred = torch.einsum("bnd,de->bne", x, weight)
            mean = (centred * there).sum((0, 1)) / there.sum()
            x = self.rectified(centred - mean) + x
        pooled = (x * there).sum(1) / there.sum(1)
        return pooled @ self.out

    def rectified(self, x: Tensor) -> Tensor:
        return nn.functional.leaky_relu(x, 0.3 if self.fault else 0.0)


def listed(step: int) -> tuple[Tensor, Tensor]:
    graph = torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))
    return torch.cat(nodes(step)), graph


def padded(step: int) -> tuple[Tensor, Tensor]:
    kinds = torch.zeros(len(SIZES), MOST, dtype=torch.int64)
    there = torch.zeros(len(SIZES), MOST, 1)
    for row, (size, some) in enumerate(zip(SIZES, nodes(step), strict=True)):
        kinds[row, :size], there[row, :size] = some, 1.0
    return kinds, there


def recorded(to: Path, model: Weights) -> Path:
    batch = listed if isinstance(model, Listed) else padded
    with opscope.record(to, values="none"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            model(*batch(step)).square().mean().backward()
            optimizer.step()
    return to


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("listed") / "run", Listed())


def test_tables_that_are_filled_up_are_silent(golden: Path, tmp_path: Path) -> None:
    document = opscope.compare(recorded(tmp_path / "run", Padded()), golden).document
    assert (document.verdict, document.findings) == ("clean", ())


def test_a_fault_between_two_of_them_is_named(golden: Path, tmp_path: Path) -> None:
    first = opscope.compare(recorded(tmp_path / "run", Padded("leaks")), golden).findings[0]
    lines = Path(__file__).read_text().splitlines()
    assert first.step == 0
    assert "self.rectified(" in lines[int((first.source or "").rpartition(":")[2]) - 1]
