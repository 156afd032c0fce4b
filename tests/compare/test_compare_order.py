# SPDX-License-Identifier: Apache-2.0
"""Elements in another order, which statistics do not show until a product meets them: told where
they are put in order, though what computes number by number stands between.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

ROWS, STEPS, HEADS, WIDE = 4, 2, 2, 6


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = (nn.Linear(WIDE, WIDE, bias=False) for _ in range(2))
        with torch.no_grad():
            for number, weight in enumerate(self.parameters()):
                weight.copy_(drawn(*weight.shape, seed=number))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.into(x).view(ROWS, HEADS, -1).transpose(1, 2).flatten(1)  # golden: order
        made: Tensor = self.out(nn.functional.gelu(parts))
        return made


def original(_: str) -> None:
    model = Original()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        loss = nn.functional.mse_loss(
            model(drawn(ROWS, WIDE, seed=20 + step)), drawn(ROWS, WIDE, seed=9)
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def ported(fault: str) -> None:
    into, out = (weight.detach().clone().requires_grad_() for weight in Original().parameters())
    for step in range(STEPS):
        x = drawn(ROWS, WIDE, seed=20 + step) @ into.T
        if fault:
            x = x.view(ROWS, WIDE // HEADS, HEADS).transpose(1, 2).flatten(1)  # target: order
        else:
            x = x.view(ROWS, HEADS, WIDE // HEADS).permute(0, 2, 1).flatten(1)
        half = x / 2**0.5
        share = torch.erf(half)
        x = x * (1 + share) / 2
        loss = (x @ out.T - drawn(ROWS, WIDE, seed=9)).square().mean()
        gradients = torch.autograd.grad(loss, [into, out])
        with torch.no_grad():
            for weight, gradient in zip((into, out), gradients, strict=True):
                weight.sub_(gradient, alpha=0.1)


@pytest.mark.parametrize("fault", ["", "order"])
def test_an_order_is_told_where_it_is_made(tmp_path: Path, fault: str) -> None:
    golden = recorded(original, tmp_path / "golden")
    found = opscope.compare(recorded(ported, tmp_path / "run", fault), golden).document
    assert found.verdict == ("found" if fault else "clean")
    for finding in found.findings:
        assert marked_line(__file__, "# target: order") in told_lines(finding, "target")
        assert marked_line(__file__, "# golden: order") in told_lines(finding, "golden")
