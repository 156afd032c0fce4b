# SPDX-License-Identifier: Apache-2.0
"""Two tensors that are joined in each other's place, which no statistics of the whole tell."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.compare.told_lines import compared, fitted
from torch import Tensor, nn

BATCHES = fitted(9, steps=2, rows=8, wide=6, out=3)


class Skipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.near, self.far = nn.Linear(6, 6), nn.Linear(6, 6)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([self.near(x), torch.tanh(self.far(x))], dim=1)
        made: Tensor = self.head(nn.functional.silu(both))
        return made


def original(_: str) -> None:
    model = Skipping()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for rows, wanted in BATCHES:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(rows), wanted).backward()
        optimizer.step()


def port(fault: str) -> None:
    held = [one.detach().clone().requires_grad_() for one in Skipping().parameters()]
    for rows, wanted in BATCHES:
        near = rows @ held[0].T + held[1]
        far = (rows @ held[2].T + held[3]).tanh()
        both = torch.cat((far, near) if fault else (near, far), 1)  # joined
        made = nn.functional.linear(both * both.sigmoid(), held[4], held[5])
        loss = (made - wanted).square().mean()
        for one, gradient in zip(held, torch.autograd.grad(loss, held), strict=True):
            one.data.sub_(0.1 * gradient)


def test_what_is_joined_alike_is_silent(tmp_path: Path) -> None:
    document = compared((port, original), tmp_path).document
    assert (document.verdict, document.findings) == ("clean", ())


def test_what_is_joined_in_another_order_is_told_where_it_is(tmp_path: Path) -> None:
    first = compared((port, original), tmp_path, "order").findings[0]
    assert first.reasons[0] == "puts together what golden does, in another order"
    assert first.source is not None
    line = int(first.source.rpartition(":")[2])
    assert Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1].endswith("# joined")
