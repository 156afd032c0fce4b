# SPDX-License-Identifier: Apache-2.0
"""Queries and keys in each other's place below a mask: scores are golden's, turned, and what the
mask makes of them hardly differs; the product is told, not rounding that grew.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tests.compare.told_lines import marked_line, told_lines
from torch import Tensor, nn

import opscope

ROWS, LENGTH, WIDE = 3, 6, 8
MASK = -1e4 * (torch.arange(LENGTH) >= 4).float()


def given() -> Tensor:
    return torch.randn(ROWS, LENGTH, WIDE, generator=torch.Generator().manual_seed(91))


def weights() -> Tensor:
    return torch.randn(3 * WIDE, WIDE, generator=torch.Generator().manual_seed(92)) / 2


class Separate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDE, WIDE, bias=False) for _ in range(3))
        with torch.no_grad():
            for layer, part in zip(self.children(), weights().chunk(3), strict=True):
                layer.weight.copy_(part)  # type: ignore[union-attr]

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.layer_norm(x, (WIDE,))
        scores = self.query(x) @ self.key(x).transpose(1, 2) / WIDE**0.5
        return (scores + MASK).softmax(-1) @ self.value(x)  # type: ignore[no-any-return]


class Fused(nn.Module):
    def __init__(self, *, crossed: bool) -> None:
        super().__init__()
        self.crossed = crossed
        self.whole = nn.Parameter(weights().t().contiguous())

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        x = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        query, key, value = (x @ self.whole).split(WIDE, -1)
        if self.crossed:
            query, key = key, query
        scores = torch.einsum("bqd,bkd->bqk", query, key)  # product
        return (scores / WIDE**0.5 + MASK).softmax(-1) @ value  # type: ignore[no-any-return]


def recorded(model: nn.Module, to: Path) -> Path:
    with opscope.record(to, values="full"), torch.no_grad():
        for _ in range(2):
            model(given())
    return to


def test_a_healthy_port_is_silent(tmp_path: Path) -> None:
    golden = recorded(Separate(), tmp_path / "golden")
    assert opscope.compare(recorded(Fused(crossed=False), tmp_path / "port"), golden).findings == ()


def test_what_is_crossed_is_told_at_its_product(tmp_path: Path) -> None:
    golden = recorded(Separate(), tmp_path / "golden")
    first = opscope.compare(recorded(Fused(crossed=True), tmp_path / "port"), golden).findings[0]
    assert marked_line(__file__, "# product") in told_lines(first, "target")
