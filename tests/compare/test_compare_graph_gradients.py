# SPDX-License-Identifier: Apache-2.0
"""Gradients that part beside code that was compiled: which call of a graph a gradient flows back
through is not known, so none of them is said to be detached.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import recorded
from torch import Tensor, nn

import opscope

WORDS, WIDE, BATCH, LONG, STEPS = 11, 6, 4, 5, 3


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(WORDS, WIDE), nn.LayerNorm(WIDE)
        self.into, self.out = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WORDS)
        with torch.no_grad():
            for number, weight in enumerate(self.parameters()):
                weight.copy_(drawn(*weight.shape, seed=number))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        x = x + torch.tanh(self.into(self.norm(x)))
        return F.cross_entropy(self.out(x).flatten(0, 1), ids.flatten())


class Ported(nn.Module):
    """The same with other names, and with a word that is not learned if there is a fault."""

    def __init__(self, padding: int | None) -> None:
        super().__init__()
        names = "words", "gain", "shift", "into", "bias", "out", "last"
        self.padding = padding
        for name, weight in zip(names, Reader().parameters(), strict=True):
            self.register_parameter(name, nn.Parameter(weight.detach().clone()))

    def forward(self, ids: Tensor) -> Tensor:
        x = F.embedding(ids, self.words, padding_idx=self.padding)
        off = x - x.mean(-1, keepdim=True)
        normed = off / (off.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.gain + self.shift
        x = x + torch.tanh(normed @ self.into.T + self.bias)
        scores = (x @ self.out.T + self.last).log_softmax(-1)
        return -scores.gather(-1, ids[..., None]).mean()


def trained(model: nn.Module, loss_of: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        ids = torch.randint(WORDS, (BATCH, LONG), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss_of(ids).backward()
        optimizer.step()


def original(_: str) -> None:
    model = Reader()
    trained(model, model)


def compiled(fault: str) -> None:
    torch._dynamo.reset()
    model = Ported(3 if fault else None)
    trained(model, torch.compile(model, backend="aot_eager"))


@pytest.mark.parametrize("fault", ["", "padding"])
def test_no_call_of_a_graph_is_said_to_be_detached(tmp_path: Path, fault: str) -> None:
    golden = recorded(original, tmp_path / "golden")
    found = opscope.compare(recorded(compiled, tmp_path / "run", fault), golden).document
    assert found.verdict == ("found" if fault else "clean")
    assert not any("detach" in reason for each in found.findings for reason in each.reasons)
