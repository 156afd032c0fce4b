# SPDX-License-Identifier: Apache-2.0
"""Of two places at which programs may part, that nothing tells from each other, both are named."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, ROWS, STEPS = 6, 8, 2


def begun() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(61)
    return [torch.randn(WIDE, WIDE, generator=drawn) * 0.4 for _ in range(3)]


def batches() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(62)
    return [torch.randn(ROWS, WIDE, generator=drawn) for _ in range(STEPS)]


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.out = (nn.Parameter(one) for one in begun())

    def forward(self, x: Tensor) -> Tensor:
        a, b = x @ self.left, x @ self.right
        both = torch.addcmul(a * 3, b, b)  # golden: right
        return both @ self.out


def original(_: str) -> None:
    model = Original()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x in batches():
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def ported(fault: str) -> None:
    """The same by functions: what is added is taken off again behind both parts."""
    left, right, out = weights = [one.requires_grad_() for one in begun()]
    optimizer = torch.optim.SGD(weights, lr=0.05)
    for x in batches():
        a, b = F.linear(x, left.T), F.linear(x, right.T)
        more = (a + 1) * 3
        #
        # far from the line above
        #
        #
        squared = b * (b.abs() if fault else b)  # target: right
        #
        # far from the line below
        #
        #
        made = (more + squared - 3) @ out
        loss = made.pow(2).sum() / made.numel()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def test_both_are_named(tmp_path: Path) -> None:
    golden = recorded(original, tmp_path / "golden")
    assert not opscope.compare(recorded(ported, tmp_path / "healthy"), golden).findings
    first = opscope.compare(recorded(ported, tmp_path / "faulty", "fault"), golden).findings[0]
    assert marked_line(__file__, "# target: right") in told_lines(first, "target")
    assert marked_line(__file__, "# golden: right") in told_lines(first, "golden")
