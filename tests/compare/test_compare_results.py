# SPDX-License-Identifier: Apache-2.0
"""Models that are only called: what they come to is compared where one has no modules, and what one
hands out beside that is nobody's fault.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, BATCH, CALLS = 16, 4, 3


def weights() -> dict[str, Tensor]:
    """What both programs begin with."""
    drawn = torch.Generator().manual_seed(5)
    return {name: torch.randn(WIDE, WIDE, generator=drawn) * 0.3 for name in ("into", "out")}


def batches() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(6)
    return [torch.randn(BATCH, WIDE, generator=drawn) for _ in range(CALLS)]


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = (nn.Parameter(one) for one in weights().values())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = F.silu(x @ self.into)  # golden: activation
        y = h @ self.out
        return y, y[:, 0]


def original(_: str) -> None:
    model = Original()
    for x in batches():
        with torch.no_grad():
            y, _pooled = model(x)
            y.abs().mean().item()


class Alone(nn.Module):
    """A model that hands out less."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.first, self.last = (nn.Parameter(one.T.contiguous()) for one in weights().values())
        self.fault = fault

    def forward(self, x: Tensor) -> Tensor:
        return computed(self.first, self.last, x, self.fault)


def computed(first: Tensor, last: Tensor, x: Tensor, fault: str) -> Tensor:
    h = F.linear(x, first)
    h = F.gelu(h) if fault else h * torch.sigmoid(h)  # target: activation
    return F.linear(h, last)


def module(fault: str) -> None:
    model = Alone(fault)
    for x in batches():
        with torch.no_grad():
            model(x).abs().mean().item()


def functions(fault: str) -> None:
    """The same without a module, so that no step is seen."""
    first, last = (one.T.contiguous() for one in weights().values())
    for x in batches():
        computed(first, last, x, fault).abs().mean().item()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("golden") / "run")


@pytest.mark.parametrize("program", [module, functions])
def test_what_is_handed_out_beside_or_not_at_all_accuses_nobody(
    golden: Path, tmp_path: Path, program: Callable[[str], None]
) -> None:
    assert not opscope.compare(recorded(program, tmp_path / "run"), golden).document.findings


@pytest.mark.parametrize("program", [module, functions])
def test_what_differs_in_what_they_come_to_is_told(
    golden: Path, tmp_path: Path, program: Callable[[str], None]
) -> None:
    run = recorded(program, tmp_path / "run", "gelu")
    finding = opscope.compare(run, golden).document.findings[0]
    assert marked_line(__file__, "# target: activation") in told_lines(finding, "target")
    assert marked_line(__file__, "# golden: activation") in told_lines(finding, "golden")
