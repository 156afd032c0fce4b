# SPDX-License-Identifier: Apache-2.0
"""A program that asks for gradients of its parameters itself beside one that goes back from its
loss, and detaches what the other does not, or the other way round.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import labelled, marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, TURNS, BATCH, CLASSES, STEPS, RATE = 8, 3, 6, 4, 3, 0.1
WORDS = {
    "cut": "no gradients flow back through it",
    "attached": "a detach is missing",
    "aside": "no gradients flow back through it",
}


def begun() -> list[Tensor]:
    """What both programs begin with."""
    drawn = torch.Generator().manual_seed(31)
    return [torch.randn(size, WIDE, generator=drawn) * 0.4 for size in (WIDE, WIDE, CLASSES)]


def batches() -> list[tuple[Tensor, Tensor]]:
    return labelled(32, steps=STEPS, size=(BATCH, TURNS * WIDE), classes=CLASSES)


class Original(nn.Module):
    """A recurrent net whose loss counts what it is sure of."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.back, self.out = (nn.Linear(WIDE, len(w), bias=False) for w in begun())
        with torch.no_grad():
            for layer, weight in zip(self.children(), begun(), strict=True):
                layer.weight.copy_(weight)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        state = torch.zeros(BATCH, WIDE)
        for part in x.split(WIDE, 1):
            state = torch.tanh(self.into(part) + self.back(state))  # golden: cut
        logits = self.out(state)
        best = logits.softmax(1).amax(1)
        sure = best.detach()  # golden: attached
        each = F.cross_entropy(logits, y, reduction="none")
        aside = logits.square().mean()  # golden: aside
        return (each * sure).mean() - 0.1 * best.mean() + 0.1 * aside


def original(_: str) -> None:
    model = Original()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for x, y in batches():
        optimizer.zero_grad()
        model(x, y).backward()
        optimizer.step()


class Ported(nn.Module):
    """The net by products with plain parameters."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.one, self.two, self.three = map(nn.Parameter, begun())
        self.fault = fault

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        state = torch.zeros(BATCH, WIDE)
        for part in x.unflatten(1, (TURNS, WIDE)).unbind(1):
            kept = state.detach() if self.fault == "cut" else state  # target: cut
            state = (part @ self.one.T + kept @ self.two.T).tanh()
        logits = state @ self.three.T
        told = logits - logits.logsumexp(1, keepdim=True)
        best = told.exp().amax(1)
        sure = best if self.fault == "attached" else best.detach()  # target: attached
        if self.fault == "scaled":  # and detached before it is computed, not behind
            sure = told.detach().exp().amax(1) * 1.1
        whole = logits.detach() if self.fault == "aside" else logits  # target: aside
        told.detach().mean().item()  # to be looked at alone
        each = -told.gather(1, y[:, None])[:, 0]
        return (each * sure).mean() - 0.1 * best.mean() + 0.1 * (whole * whole).mean()


def ported(fault: str) -> None:
    model = Ported(fault)
    weights = [*model.parameters()]
    for x, y in batches():
        gradients = torch.autograd.grad(model(x, y), weights, materialize_grads=True)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(RATE * gradient)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("golden") / "run")


def test_what_both_detach_is_nothing(golden: Path, tmp_path: Path) -> None:
    assert not opscope.compare(recorded(ported, tmp_path / "run"), golden).document.findings


@pytest.mark.parametrize("fault", WORDS)
def test_what_one_detaches_alone_is_told(golden: Path, tmp_path: Path, fault: str) -> None:
    run = recorded(ported, tmp_path / "run", fault)
    finding = opscope.compare(run, golden).document.findings[0]
    for side in ("target", "golden"):
        assert marked_line(__file__, f"# {side}: {fault}") in told_lines(finding, side)
    assert any(WORDS[fault] in reason for reason in finding.reasons)


def test_what_is_detached_elsewhere_is_not(golden: Path, tmp_path: Path) -> None:
    run = recorded(ported, tmp_path / "run", "scaled")
    [finding, *_] = opscope.compare(run, golden).document.findings
    assert not any(words in reason for words in WORDS.values() for reason in finding.reasons)
