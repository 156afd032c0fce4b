# SPDX-License-Identifier: Apache-2.0
"""A recurrent net with one bias that stands for two, and a batch that one side trains in two parts:
the fault is told where it is, not where the two are only written otherwise.
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

WIDE, BATCH, LONG, STEPS, RATE, PARTS = 6, 4, 5, 2, 0.1, 2


def begun() -> dict[str, Tensor]:
    """What all programs begin with."""
    drawn = torch.Generator().manual_seed(5)
    sizes = {"into": (WIDE, WIDE), "again": (WIDE, WIDE), "bias_into": (WIDE,)}
    sizes |= {"bias_again": (WIDE,), "out": (WIDE, 2)}
    return {name: torch.randn(*size, generator=drawn) * 0.5 for name, size in sizes.items()}


def batches() -> list[tuple[Tensor, Tensor]]:
    drawn = torch.Generator().manual_seed(6)
    return [
        (torch.randn(BATCH, LONG, WIDE, generator=drawn), torch.randn(BATCH, 2, generator=drawn))
        for _ in range(STEPS)
    ]


class Original(nn.Module):
    """A cell with a bias for what it is given, and one for what it remembers."""

    def __init__(self) -> None:
        super().__init__()
        for name, held in begun().items():
            self.register_parameter(name, nn.Parameter(held))

    def forward(self, x: Tensor) -> Tensor:
        given = x @ self.into + self.bias_into  # golden: order
        h, states = torch.zeros(len(x), WIDE), list[Tensor]()
        for at in range(LONG):
            h = torch.tanh(given[:, at] + h @ self.again + self.bias_again)  # golden: cell
            states.append(h)
        h = torch.stack(states)[-1]  # golden: late
        near, far = h.split(WIDE // 2, dim=-1)
        turned = torch.cat([near - far, far + near], dim=-1)  # golden: turned
        return F.silu(turned) @ self.out  # golden: activation


class Ported(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, old = fault, begun()
        self.cell, self.again = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE, bias=False)
        self.out = nn.Parameter(old["out"])
        with torch.no_grad():
            self.cell.bias.copy_(old["bias_into"] + old["bias_again"])
            self.cell.weight.copy_(old["into"].T)
            self.again.weight.copy_(old["again"].T)

    def forward(self, x: Tensor) -> Tensor:
        h, states = torch.zeros(len(x), WIDE), list[Tensor]()
        for at in range(LONG):
            read = -h if self.fault == "cell" else h
            now = LONG - 1 - at if self.fault == "order" else at
            given = self.cell(x[:, now])  # target: order
            h = torch.tanh(given + self.again(read))  # target: cell
            states.append(h)
        if self.fault == "late":
            h = torch.stack(states, dim=1).mean(1)  # target: late
        near, far = h[:, : WIDE // 2], h[:, WIDE // 2 :]
        sign = -1 if self.fault == "turned" else 1
        h = torch.cat([near - far, far + sign * near], dim=-1)  # target: turned
        h = F.gelu(h) if self.fault == "activation" else h * torch.sigmoid(h)  # target: activation
        return h @ self.out


def original(_: str) -> None:
    model = Original()
    rates = [
        {"params": [held], "lr": RATE / 2 if "bias" in name else RATE}
        for name, held in model.named_parameters()
    ]
    trained(model, torch.optim.SGD(rates), parts=1)


def ported(fault: str) -> None:
    model = Ported(fault)
    trained(model, torch.optim.SGD(model.parameters(), lr=RATE), parts=1)


def accumulated(fault: str) -> None:
    model = Ported(fault)
    trained(model, torch.optim.SGD(model.parameters(), lr=RATE), parts=PARTS)


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, *, parts: int) -> None:
    for x, y in batches():
        optimizer.zero_grad()
        for some, told in zip(x.chunk(parts), y.chunk(parts), strict=True):
            (F.mse_loss(model(some), told) / parts).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("golden") / "run")


@pytest.mark.parametrize("program", [ported, accumulated])
def test_one_bias_for_two_and_two_parts_for_one_batch_accuse_nobody(
    golden: Path, tmp_path: Path, program: Callable[[str], None]
) -> None:
    assert not opscope.compare(recorded(program, tmp_path / "run"), golden).document.findings


@pytest.mark.parametrize("fault", ["order", "cell", "late", "turned", "activation"])
@pytest.mark.parametrize("program", [ported, accumulated])
def test_a_fault_is_told_in_the_forward_pass(
    golden: Path, tmp_path: Path, program: Callable[[str], None], fault: str
) -> None:
    finding = opscope.compare(recorded(program, tmp_path / "run", fault), golden).document.findings[
        0
    ]
    assert finding.phase == "forward"
    assert marked_line(__file__, f"# target: {fault}") in told_lines(finding, "target")
    assert marked_line(__file__, f"# golden: {fault}") in told_lines(finding, "golden")
