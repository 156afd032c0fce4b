# SPDX-License-Identifier: Apache-2.0
"""A line without an operator, in the midst of those where two programs part, is named with them."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, LONG, STEPS = 6, 9, 2


def begun() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(31)
    return [torch.randn(WIDE, WIDE, generator=drawn) for _ in range(3)]


def batches() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(32)
    return [torch.randn(LONG, WIDE, generator=drawn) for _ in range(STEPS)]


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Parameter(one) for one in begun())

    def forward(self, x: Tensor) -> Tensor:
        scores = (x @ self.query) @ (x @ self.key).T
        scale = WIDE**-0.5  # golden: scale
        weights = (scores * scale).softmax(-1)
        return weights @ (x @ self.value)


def original(_: str) -> None:
    model = Original()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in batches():
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def ported(fault: str) -> None:
    """The same by functions, of which the query is scaled."""
    query, key, value = weights = [one.requires_grad_() for one in begun()]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for x in batches():
        asked = torch.einsum("nd,de->ne", x, query)
        factor = WIDE ** (-1.0 if fault else -0.5)  # target: scale
        asked = asked * factor
        found = torch.einsum("ne,me->nm", asked, torch.einsum("nd,de->ne", x, key))
        made = F.softmax(found, 1) @ torch.einsum("nd,de->ne", x, value)
        loss = (made**2).sum() / made.numel()
        for one, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            one.grad = gradient
        optimizer.step()


def test_a_line_between_two_that_are_named_is_named(tmp_path: Path) -> None:
    golden = recorded(original, tmp_path / "golden")
    assert not opscope.compare(recorded(ported, tmp_path / "healthy"), golden).findings
    first = opscope.compare(recorded(ported, tmp_path / "faulty", "fault"), golden).findings[0]
    assert marked_line(__file__, "# target: scale") in told_lines(first, "target")
    assert marked_line(__file__, "# golden: scale") in told_lines(first, "golden")
    assert all(len(told_lines(first, side)) <= 10 for side in ("target", "golden"))
