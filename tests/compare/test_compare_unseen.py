# SPDX-License-Identifier: Apache-2.0
"""Two programs part at numbers of which statistics tell nothing, one or two of them in all: the
lines that made these are named.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import marked_line, told_lines
from torch import Tensor, nn

import opscope
from opscope.run.finding import Finding

KINDS, WIDE, STEPS, SHARE, RATE = 24, 8, 3, 0.3, 0.1


def weight() -> Tensor:
    return torch.randn(WIDE, WIDE, generator=torch.Generator().manual_seed(5)) * 0.5


Batches = list[tuple[Tensor, Tensor]]


def batches() -> Batches:
    """Rows and their kinds, of which some come again."""
    drawn = torch.Generator().manual_seed(6)
    return [
        (torch.randn(WIDE, WIDE, generator=drawn), torch.arange(4 * step, 4 * step + WIDE))
        for step in range(STEPS)
    ]


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Parameter(weight())

    def forward(self, x: Tensor, often: Tensor) -> Tensor:
        scores: Tensor = torch.relu(x @ self.into) - torch.log(often)[:, None]
        return scores.square().mean()


def original(given: Batches, _: str) -> None:
    """Rows weigh less the more often their kinds come: after so many steps on average."""
    model = Original()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    when, gap = torch.zeros(KINDS), torch.full((KINDS,), 4.0)
    for number, (x, kinds) in enumerate(given, 1):
        fresh = number - when[kinds]  # golden: waited
        kept = (1 - SHARE) * gap[kinds]
        gap[kinds] = kept + SHARE * fresh
        when[kinds] = float(number)
        loss = model(x, 1.0 / gap[kinds])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def ported(given: Batches, fault: str) -> None:
    into = weight().requires_grad_()
    optimizer = torch.optim.SGD([into], lr=RATE)
    when, every = torch.zeros(KINDS), torch.full((KINDS,), 4.0)
    for number, (x, kinds) in enumerate(given, 1):
        waited = number - when.index_select(0, kinds)  # target: waited
        one = torch.lerp(every.index_select(0, kinds), waited, SHARE)
        every = every.index_copy(0, kinds, one)
        when = when.index_fill(0, kinds, 0 if fault else number)
        often = every.index_select(0, kinds).reciprocal()
        scores = (x @ into).clamp(min=0) - often.log().unsqueeze(1)
        optimizer.zero_grad()
        (scores**2).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def compared(folder: Path, fault: str) -> tuple[Finding, ...]:
    runs: dict[str, Callable[[Batches, str], None]] = {"golden": original, "target": ported}
    for name, program in runs.items():
        given = batches()
        with opscope.record(folder / name, values="none"):
            program(given, fault)
    return opscope.compare(folder / "target", folder / "golden").findings


def test_a_healthy_port_is_silent(tmp_path: Path) -> None:
    assert compared(tmp_path, "") == ()


@pytest.mark.parametrize("side", ["target", "golden"])
def test_the_lines_that_made_them_are_named(tmp_path: Path, side: str) -> None:
    first = compared(tmp_path, "forgets")[0]
    assert first.step == 1
    assert marked_line(__file__, f"# {side}: waited") in told_lines(first, side)
