# SPDX-License-Identifier: Apache-2.0
"""Where programs part, though what is read there agrees by itself: the lines that prepared it are
named, and those of the other side that do the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

ROWS, WIDE, STEPS, LONGEST, RATE = 6, 8, 2, 1e-3, 0.5


def begun() -> list[Tensor]:
    """What both programs begin with."""
    drawn = torch.Generator().manual_seed(7)
    return [torch.randn(WIDE, WIDE, generator=drawn) * 0.5 for _ in range(2)]


def batches() -> list[list[Tensor]]:
    """Rows, the last of them small, two more tables of as many, and lengths."""
    drawn = torch.Generator().manual_seed(8)
    every = [[torch.randn(ROWS, WIDE, generator=drawn) for _ in range(3)] for _ in range(STEPS)]
    lengths = [torch.randint(2, WIDE, (ROWS, 1), generator=drawn) for _ in range(STEPS)]
    for x, *_ in every:
        x[-1] *= 0.01
    return [[*tables, length] for tables, length in zip(every, lengths, strict=True)]


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = (nn.Parameter(one) for one in begun())

    def forward(self, x: Tensor, gate: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        h = x @ self.into  # golden: rows
        top = h.amax(0)
        opened = gate.abs() * level  # golden: bare
        return (h + opened) @ self.out, top


def original(_: str) -> None:
    model = Original()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for x, gate, level, lengths in batches():
        truth = (torch.arange(WIDE) < lengths).float()  # golden: labels
        scores, top = model(x, gate, level)
        table = scores.T.reshape(ROWS, WIDE)  # golden: order
        away = F.mse_loss(table, level) + top.mean()
        loss = away + F.binary_cross_entropy_with_logits(scores, truth)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), LONGEST)  # golden: clipped
        optimizer.step()


def ported(fault: str) -> None:
    """The same by functions, with gradients that are cut short before they are handed on."""
    into, out = (one.requires_grad_() for one in begun())
    optimizer = torch.optim.SGD([into, out], lr=RATE)
    kept = torch.ones(ROWS, 1)
    kept[-1] = 0.5
    for x, gate, level, lengths in batches():
        read = x * kept if fault == "rows" else x  # target: rows
        h = read @ into
        far = torch.arange(WIDE) > lengths if fault == "labels" else torch.arange(WIDE) >= lengths
        truth = 1.0 - far.float()  # target: labels
        # how far a gate is open, whichever way it turns, tells how much of the level
        # comes through
        strong = gate if fault == "bare" else gate.abs()  # target: bare
        scores = torch.addcmul(h, strong, level) @ out
        turned = scores if fault == "order" else scores.T
        table = turned.reshape(ROWS, WIDE).clone()  # target: order
        away = (table - level).square().mean() + h.amax(0).mean()
        loss = away + (F.softplus(scores) - scores * truth).mean()
        gradients = torch.autograd.grad(loss, [into, out])
        norm = torch.stack([one.square().sum() for one in gradients]).sum().sqrt()
        for own, one in zip((into, out), gradients, strict=True):
            cut = one.clamp(-LONGEST, LONGEST)  # target: clipped
            own.grad = cut if fault == "clipped" else one * (LONGEST / (norm + 1e-6))
        optimizer.step()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("original") / "run")


def test_a_healthy_port_is_silent(golden: Path, tmp_path: Path) -> None:
    found = opscope.compare(recorded(ported, tmp_path / "run"), golden).document
    assert (found.verdict, found.complete, found.findings) == ("clean", True, ())


@pytest.mark.parametrize("fault", ["rows", "labels", "order", "clipped", "bare"])
def test_the_lines_of_a_fault_are_named_on_both_sides(
    golden: Path, tmp_path: Path, fault: str
) -> None:
    first = opscope.compare(recorded(ported, tmp_path / "run", fault), golden).findings[0]
    assert first.step == 0
    assert marked_line(__file__, f"# target: {fault}") in told_lines(first, "target")
    assert marked_line(__file__, f"# golden: {fault}") in told_lines(first, "golden")
