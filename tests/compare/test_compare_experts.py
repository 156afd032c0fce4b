# SPDX-License-Identifier: Apache-2.0
"""Experts that are called one by one on what is theirs, beside all of them on everything: the line
of an expert is named, though what chooses comes before it and meets nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, INNER, EXPERTS, ROWS, STEPS = 6, 10, 3, 12, 2


def begun() -> list[Tensor]:
    """The gate, and of all experts the two weights and the bias between them."""
    drawn = torch.Generator().manual_seed(51)
    shapes = (EXPERTS, WIDE), (EXPERTS, INNER, WIDE), (EXPERTS, INNER), (EXPERTS, WIDE, INNER)
    return [torch.randn(shape, generator=drawn) * 0.3 for shape in shapes]


def batches() -> list[tuple[Tensor, Tensor]]:
    drawn = torch.Generator().manual_seed(52)
    shape = ROWS, WIDE
    return [
        (torch.randn(shape, generator=drawn), torch.randn(shape, generator=drawn))
        for _ in range(STEPS)
    ]


class Expert(nn.Module):
    def __init__(self, up: Tensor, bias: Tensor, down: Tensor) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDE, INNER), nn.Linear(INNER, WIDE, bias=False)
        self.up.weight, self.down.weight = nn.Parameter(up.clone()), nn.Parameter(down.clone())
        self.up.bias = nn.Parameter(bias.clone())

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.up(x)))  # golden: expert


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        gate, *weights = begun()
        self.gate = nn.Parameter(gate)
        self.experts = nn.ModuleList(Expert(*each) for each in zip(*weights, strict=True))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        odds = (x @ self.gate.T).softmax(-1)
        weight, chosen = odds.max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == number)
            out.index_add_(0, rows, expert(x[rows]) * weight[rows, None])
        return out, odds


class Block(nn.Module):
    """Two mixtures, the second of what the first makes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Mixture(), Mixture()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, _ = self.first(x)
        z, odds = self.second(x + y)
        return z, odds


def original(_: str) -> None:
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, goal in batches():
        made, odds = model(x)
        loss = F.mse_loss(made, goal) + odds.square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def mixed(
    x: Tensor, gate: Tensor, up: Tensor, bias: Tensor, down: Tensor, fault: str
) -> tuple[Tensor, Tensor]:
    odds = F.softmax(F.linear(x, gate), 1)
    best, chosen = odds.topk(1)
    share = torch.zeros_like(odds).scatter(1, chosen, best)
    inner = torch.einsum("nd,eid->eni", x, up) + bias[:, None]  # target: reversed
    opened = F.gelu(inner) if fault == "activation" else inner * inner.sigmoid()
    every = torch.bmm(opened, down.mT)  # target: activation
    return torch.einsum("ne,end->nd", share, every), odds


def ported(fault: str) -> None:
    weights = [[each.requires_grad_() for each in begun()] for _ in range(2)]
    if fault == "reversed":
        weights[0][1] = weights[0][1].detach().flip(0).requires_grad_()
    optimizer = torch.optim.SGD([each for some in weights for each in some], lr=0.1)
    for x, goal in batches():
        y, _ = mixed(x, *weights[0], fault)
        z, odds = mixed(x + y, *weights[1], fault)
        loss = (z - goal).pow(2).sum() / goal.numel() + (odds**2).sum() / odds.numel()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("original") / "run")


def test_healthy_experts_are_silent(golden: Path, tmp_path: Path) -> None:
    found = opscope.compare(recorded(ported, tmp_path / "run"), golden).document
    assert (found.verdict, found.complete, found.findings) == ("clean", True, ())


@pytest.mark.parametrize("fault", ["reversed", "activation"])
def test_the_line_of_an_expert_is_named(golden: Path, tmp_path: Path, fault: str) -> None:
    first = opscope.compare(recorded(ported, tmp_path / "run", fault), golden).findings[0]
    assert marked_line(__file__, f"# target: {fault}") in told_lines(first, "target")
    assert marked_line(__file__, "# golden: expert") in told_lines(first, "golden")
