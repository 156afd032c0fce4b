# SPDX-License-Identifier: Apache-2.0
"""Programs written again without what the original has: modules, an optimizer of torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import opscope

WIDE, STEPS = 16, 3
Weights = list[Tensor]


def weights() -> Weights:
    held = torch.Generator().manual_seed(5)
    return [torch.randn(shape, generator=held) * 0.3 for shape in ((WIDE, 8), (WIDE, 8), (8, WIDE))]


def batches() -> Weights:
    return [
        torch.randn(6, 8, generator=torch.Generator().manual_seed(step)) for step in range(STEPS)
    ]


class Gated(nn.Module):
    """A feed-forward layer of Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(8, WIDE, bias=False), nn.Linear(8, WIDE, bias=False)
        self.down = nn.Linear(WIDE, 8, bias=False)
        for own, held in zip(self.parameters(), weights(), strict=True):
            own.data.copy_(held)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return made


def original(fault: str = "") -> None:
    model = Gated()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=not fault)
    for x in batches():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def without_modules(fault: str = "") -> None:
    held = [one.requires_grad_() for one in weights()]
    optimizer = torch.optim.Adam(held, lr=1e-3)
    for x in batches():
        gate, up, down = held
        gated = x @ gate.T
        slope = 1.1 if fault else 1.0
        made = (gated * torch.sigmoid(slope * gated) * (x @ up.T)) @ down.T
        optimizer.zero_grad()
        (made**2).mean().backward()
        optimizer.step()


def without_optimizer(fault: str = "") -> None:
    model = Gated()
    held = list(model.parameters())
    first, second = ([torch.zeros_like(one) for one in held] for _ in range(2))
    for number, x in enumerate(batches(), 1):
        model.zero_grad()
        model(x).square().mean().backward()
        with torch.no_grad():
            for own, mean, square in zip(held, first, second, strict=True):
                assert own.grad is not None
                mean.copy_(0.9 * mean + 0.1 * own.grad)
                square.copy_(0.999 * square + 0.001 * own.grad * own.grad)
                root = square / (1 - 0.999**number)
                under = (root + 1e-8).sqrt() if fault else root.sqrt() + 1e-8
                own.sub_(1e-3 * (mean / (1 - 0.9**number)) / under)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("original") / "run")


def recorded(program: Callable[[str], None], to: Path, fault: str = "") -> Path:
    with opscope.record(to, values="none"):
        program(fault)
    return to


@pytest.mark.parametrize("program", [without_modules, without_optimizer])
def test_what_is_written_without_is_silent(
    program: Callable[[str], None], golden: Path, tmp_path: Path
) -> None:
    document = opscope.compare(recorded(program, tmp_path / "run"), golden).document
    assert (document.verdict, document.complete, document.findings) == ("clean", True, ())


def test_a_fault_of_raw_tensors_is_named(golden: Path, tmp_path: Path) -> None:
    first = opscope.compare(recorded(without_modules, tmp_path / "run", "x"), golden).findings[0]
    assert (first.step, first.phase) == (0, "forward")
    assert "silu" in first.evidence[0]["golden_call"]


def test_an_optimizer_is_named_though_its_first_step_is_off_by_little(
    golden: Path, tmp_path: Path
) -> None:
    first = opscope.compare(recorded(without_optimizer, tmp_path / "run", "x"), golden).findings[0]
    begin = without_optimizer.__code__.co_firstlineno
    assert first.step == 0
    assert int((first.source or "").rpartition(":")[2]) in range(begin + 8, begin + 16)
