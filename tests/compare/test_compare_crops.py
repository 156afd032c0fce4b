# SPDX-License-Identifier: Apache-2.0
"""One program computes with each sequence but its last token, the other cuts off what its model
makes of that: what is a part of the other's meets it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WORDS, WIDE, BATCH, LONG, STEPS, RATE = 29, 16, 4, 12, 2, 0.1


def begun() -> list[Tensor]:
    """What both programs begin with."""
    drawn = torch.Generator().manual_seed(5)
    sizes = (WORDS, WIDE), (WIDE, 2 * WIDE), (2 * WIDE, WIDE)
    return [torch.randn(*size, generator=drawn) * 0.3 for size in sizes]


def batches() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(6)
    return [torch.randint(WORDS, (BATCH, LONG), generator=drawn) for _ in range(STEPS)]


class Original(nn.Module):
    """A model that is given what it shall say, and shifts it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.into, self.out = (nn.Parameter(one) for one in begun())

    def forward(self, ids: Tensor) -> Tensor:
        x = F.embedding(ids, self.words)
        past = x.cumsum(1) / torch.arange(1, ids.shape[1] + 1)[:, None]  # golden: past
        h = F.gelu(past @ self.into)  # golden: activation
        logits = (x + h @ self.out) @ self.words.T  # golden: residual
        said = logits[:, :-1].reshape(-1, WORDS)
        return F.cross_entropy(said, ids[:, 1:].reshape(-1))


def original(_: str) -> None:
    model = Original()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for ids in batches():
        loss = model(ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Ported(nn.Module):
    """One that is given what is behind it alone."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        words, into, out = begun()
        self.embedding = nn.Embedding(WORDS, WIDE, _weight=words)
        self.into, self.out = nn.Linear(WIDE, 2 * WIDE, False), nn.Linear(2 * WIDE, WIDE, False)
        self.fault = fault
        with torch.no_grad():
            self.into.weight.copy_(into.T)
            self.out.weight.copy_(out.T)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        weights = torch.ones(ids.shape[1], ids.shape[1]).tril()
        weights = weights.triu(-2) if self.fault == "past" else weights
        past = (weights / weights.sum(1, keepdim=True)) @ x  # target: past
        form = "tanh" if self.fault == "activation" else "none"
        h = self.out(F.gelu(self.into(past), approximate=form))  # target: activation
        read = past if self.fault == "residual" else x
        return F.linear(read + h, self.embedding.weight)  # target: residual


def ported(fault: str) -> None:
    model = Ported(fault)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for ids in batches():
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("golden") / "run")


def test_a_model_that_is_given_less_than_another_is_the_same(golden: Path, tmp_path: Path) -> None:
    assert not opscope.compare(recorded(ported, tmp_path / "run"), golden).document.findings


@pytest.mark.parametrize("fault", ["activation", "residual", "past"])
def test_its_fault_is_found_inside(golden: Path, tmp_path: Path, fault: str) -> None:
    run = recorded(ported, tmp_path / "run", fault)
    finding = opscope.compare(run, golden).document.findings[0]
    assert finding.source.endswith(f":{marked_line(__file__, f'# target: {fault}')}")
    assert marked_line(__file__, f"# golden: {fault}") in told_lines(finding, "golden")
