# SPDX-License-Identifier: Apache-2.0
"""A number that both programs read out behind models that agree: it is said, and accuses nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import marked_line, recorded
from torch import Tensor, nn

import opscope

WIDE, ROWS, STEPS = 6, 8, 3


def begun() -> Tensor:
    return torch.randn(WIDE, WIDE, generator=torch.Generator().manual_seed(41))


def batches() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(42)
    return [torch.randn(ROWS, WIDE, generator=drawn) for _ in range(STEPS)]


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDE, WIDE, bias=False)
        with torch.no_grad():
            self.project.weight.copy_(begun())

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.project(x))


def original(_: str) -> None:
    model = Original()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in batches():
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()
    with torch.no_grad():
        free, told = model(torch.cat((x, -2 * x))).chunk(2)
        guided = free + 3.0 * (told - free)
        guided.square().mean().item()  # golden


def ported(fault: str) -> None:
    weight = begun().requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for x in batches():
        made = torch.einsum("nd,ed->ne", x, weight).tanh()
        loss = (made**2).sum() / made.numel()
        (weight.grad,) = torch.autograd.grad(loss, [weight])
        optimizer.step()
        loss.item()
    with torch.no_grad():
        free, told = (torch.einsum("nd,ed->ne", part, weight).tanh() for part in (x, -2 * x))
        guided = torch.lerp(free, told, 4.0 if fault else 3.0)
        ((guided**2).sum() / guided.numel()).item()  # target


@pytest.mark.parametrize("fault", ["", "guided"])
def test_a_metric_that_is_not_the_same_is_said_with_both_lines(tmp_path: Path, fault: str) -> None:
    target, golden = recorded(ported, tmp_path / "a", fault), recorded(original, tmp_path / "b")
    found = opscope.compare(target, golden).document
    assert (found.verdict, found.complete, found.findings) == ("clean", True, ())
    said = [words for words in found.summary["warnings"] if "both read out a number" in words]
    assert len(said) == bool(fault)
    for words in said:
        assert f"{__file__}:{marked_line(__file__, '# target')}, golden" in words
        assert f"{__file__}:{marked_line(__file__, '# golden')};" in words
