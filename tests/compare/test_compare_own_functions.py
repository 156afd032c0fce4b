# SPDX-License-Identifier: Apache-2.0
"""Programs that have little in common but the numbers that they read out, and autograd functions of
a program's own, in which no call has a gradient though the whole has one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.compare.told_lines import fitted, marked_line, recorded, told_lines
from torch import Tensor, nn
from torch.func import grad_and_value

import opscope

WIDE, BATCH, STEPS, RATE = 6, 7, 4, 0.2


def begun() -> dict[str, Tensor]:
    drawn = torch.Generator().manual_seed(45)
    return {name: torch.randn(WIDE, WIDE, generator=drawn) * 0.6 for name in ("into", "out")}


def batches() -> list[tuple[Tensor, Tensor]]:
    return fitted(46, steps=STEPS, rows=BATCH, wide=WIDE, out=WIDE)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = (nn.Parameter(weight) for weight in begun().values())

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.into) @ self.out


def original(fault: str) -> None:
    """With a penalty that is told beside the loss, which is told twice; or once, and goes back apart
    from the penalty.
    """
    model = Model()
    sgd = torch.optim.SGD(model.parameters(), lr=RATE)
    for x, y in batches():
        out = model(x)
        kept = 0.01 * out.square().mean()  # golden: kept
        fit = nn.functional.mse_loss(out, y)  # golden: bent
        loss = fit + kept
        sgd.zero_grad()
        for part in (fit, kept) if fault == "apart" else (loss,):
            part.backward(retain_graph=True)
        sgd.step()  # golden: rate
        loss.item()
        if not fault:
            loss.item()
            kept.item()


def of_plain_tensors(fault: str) -> None:
    """The same as one function of a dictionary; a mean of all losses so far is told in their place,
    or another rate is a fault, or another penalty, by which all losses are others.
    """
    weights, rate = begun(), RATE / 2 if fault == "rate" else RATE

    def loss_of(held: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        out = torch.tanh(x @ held["into"]) @ held["out"]
        share = 0.015 if fault == "kept" else 0.01
        return (out - y).square().mean() + share * out.square().mean()  # target: kept

    total = torch.zeros(())
    for number, (x, y) in enumerate(batches(), 1):
        grads, loss = grad_and_value(loss_of)(weights, x, y)
        for name, held in weights.items():
            weights[name] = held - rate * grads[name]  # target: rate
        total = total + loss
        (total / number if fault == "mean" else loss).item()


class Fitted(torch.autograd.Function):
    """A layer and its loss, with gradients that are made at once."""

    share = 1.0

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, y: Tensor) -> Tensor:
        out = h @ weight.T
        off = 2 * (out - y) / y.numel() + Fitted.share * 0.02 * out / y.numel()  # target: bent
        ctx.save_for_backward(off @ weight, off.T @ h)
        return (out - y).square().mean() + 0.01 * out.square().mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Iterable[Tensor | None]:
        back, own = ctx.saved_tensors
        return grad * back, grad * own, None


def by_own_functions(fault: str) -> None:
    Fitted.share = 50.0 if fault == "bent" else 1.0
    net = Model()
    with torch.no_grad():
        net.out.copy_(begun()["out"].T)
    for x, y in batches():
        h = torch.tanh(x @ net.into)
        loss = Fitted.apply(h, net.out, y)  # type: ignore[no-untyped-call]
        loss.backward()
        with torch.no_grad():
            for held in net.parameters():
                assert held.grad is not None
                held.sub_(RATE * held.grad)
                held.grad = None
        loss.item()


@pytest.mark.parametrize("golden", ["", "once", "apart"])
@pytest.mark.parametrize("program", ["", "mean"])
def test_losses_read_out_twice_or_as_a_running_mean_are_nothing(
    tmp_path: Path, golden: str, program: str
) -> None:
    target = recorded(of_plain_tensors, tmp_path / "run", program)
    assert not opscope.compare(
        target, recorded(original, tmp_path / "old", golden)
    ).document.findings


def test_own_functions_are_nothing(tmp_path: Path) -> None:
    target = recorded(by_own_functions, tmp_path / "run")
    assert not opscope.compare(target, recorded(original, tmp_path / "old")).document.findings


@pytest.mark.parametrize(
    ("program", "fault", "golden"),
    [
        (of_plain_tensors, "rate", ""),
        (of_plain_tensors, "kept", "apart"),
        (by_own_functions, "bent", ""),
    ],
)
def test_what_is_computed_otherwise_is_told(
    tmp_path: Path, program: Any, fault: str, golden: str
) -> None:
    target = recorded(program, tmp_path / "run", fault)
    old = recorded(original, tmp_path / "old", golden)
    finding = opscope.compare(target, old).document.findings[0]
    for side in ("target", "golden"):
        assert marked_line(__file__, f"# {side}: {fault}") in told_lines(finding, side)
