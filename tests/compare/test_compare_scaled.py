# SPDX-License-Identifier: Apache-2.0
"""Losses and gradients that one side scales: nothing is to be told of them where the scale is taken
back, or where the other side's come to be the same before they are used.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import fitted, marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, BATCH, STEPS, SCALE, SLOW, LONGEST = 6, 8, 3, 512.0, 0.25, 0.05


def begun() -> list[Tensor]:
    """Two norms that begin alike and two matrices."""
    drawn = torch.Generator().manual_seed(5)
    return [torch.randn(WIDE, WIDE, generator=drawn) for _ in range(2)]


def batches() -> list[tuple[Tensor, Tensor]]:
    return fitted(6, steps=STEPS, rows=BATCH, wide=WIDE, out=WIDE)


class Model(nn.Module):
    """A norm and a layer, twice; slowly: what the first layer learns is a part of its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDE, bias=False) for _ in range(2))
        self.layers = nn.ModuleList(nn.Linear(WIDE, WIDE, bias=False) for _ in range(2))
        with torch.no_grad():
            for layer, weight in zip(self.layers, begun(), strict=True):
                layer.weight.copy_(weight)

    def forward(self, x: Tensor) -> Tensor:
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = torch.tanh(layer(norm(x)))
        return x


def original(_: str) -> None:
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, eps=1e-2)
    for x, y in batches():
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        model.layers[0].weight.grad.mul_(SLOW)  # golden: slow
        optimizer.step()  # golden: unscaled
        loss.item()


def normed(x: Tensor, weight: Tensor) -> Tensor:
    var, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
    return (x - mean) / (var + 1e-5).sqrt() * weight


class Slow(torch.autograd.Function):
    """What it is given, and a part of its gradient."""

    @staticmethod
    def forward(ctx: object, x: Tensor, share: float) -> Tensor:  # type: ignore[override]
        ctx.share = share  # type: ignore[attr-defined]
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad * ctx.share, None  # type: ignore[attr-defined]


def ported(fault: str) -> None:
    """The same of plain tensors, with a loss that is scaled."""
    weights = [torch.ones(WIDE), torch.ones(WIDE), *(weight.t().clone() for weight in begun())]
    weights = [weight.requires_grad_() for weight in weights]
    kept = [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in weights]
    share = 1.0 if fault == "slow" else SLOW
    for step, (x, y) in enumerate(batches(), 1):
        first, second, into, out = weights
        h = torch.tanh(normed(x, first) @ Slow.apply(into, share))  # type: ignore[no-untyped-call]
        h = torch.tanh(normed(h, second) @ out)
        loss = torch.nn.functional.mse_loss(h, y)
        scaled = torch.autograd.grad(loss * SCALE, weights)
        with torch.no_grad():
            for weight, grad, (mean, square) in zip(weights, scaled, kept, strict=True):
                own = grad / (SCALE / 2 if fault == "unscaled" else SCALE)  # target: unscaled
                mean.mul_(0.9).add_(own, alpha=0.1)  # target: slow
                square.mul_(0.999).addcmul_(own, own, value=0.001)
                root = (square / (1 - 0.999**step)).sqrt() + 1e-2
                weight.sub_(0.05 / (1 - 0.9**step) * mean / root)
        loss.item()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("golden") / "run")


def test_a_scale_that_is_taken_back_is_nothing(golden: Path, tmp_path: Path) -> None:
    target = recorded(ported, tmp_path / "run")
    assert not opscope.compare(target, golden).document.findings
    assert not opscope.compare(golden, target).document.findings


@pytest.mark.parametrize("fault", ["unscaled", "slow"])
def test_a_scale_that_stays_is_told_in_the_step_that_learns_by_it(
    golden: Path, tmp_path: Path, fault: str
) -> None:
    target = recorded(ported, tmp_path / "run", fault)
    finding = opscope.compare(target, golden).document.findings[0]
    assert finding.step == 0
    assert marked_line(__file__, f"# target: {fault}") in told_lines(finding, "target")
    assert marked_line(__file__, f"# golden: {fault}") in told_lines(finding, "golden")


def clipped(_: str) -> None:
    """With gradients that are clipped by their norm."""
    model = Model()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1, initial_accumulator_value=0.1)
    for x, y in batches():
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), LONGEST)
        optimizer.step()  # golden: begun
        loss.item()


def scaled_and_clipped(fault: str) -> None:
    """The same by hand, with a loss that is scaled until its gradients are clipped."""
    model = Model()
    weights = list(model.parameters())
    sums = [torch.full_like(weight, 0.0 if fault == "begun" else 0.1) for weight in weights]
    for x, y in batches():
        loss = nn.functional.mse_loss(model(x), y)
        (loss * SCALE).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            grads = [weight.grad for weight in weights if weight.grad is not None]
            torch._foreach_div_(grads, SCALE)
            norm = torch.cat([grad.flatten() for grad in grads]).norm()
            for weight, grad, held in zip(weights, grads, sums, strict=True):
                own = grad * min(1.0, LONGEST / (norm.item() + 1e-6))
                held.addcmul_(own, own)  # target: begun
                weight.sub_(0.1 * own / (held.sqrt() + 1e-10))
                weight.grad = None
        loss.item()


@pytest.mark.parametrize("fault", ["", "begun"])
def test_a_scale_is_taken_back_whatever_else_is_wrong(tmp_path: Path, fault: str) -> None:
    target = recorded(scaled_and_clipped, tmp_path / "run", fault)
    findings = opscope.compare(target, recorded(clipped, tmp_path / "old")).document.findings
    assert bool(findings) == bool(fault)
    for finding in findings[:1]:
        assert marked_line(__file__, f"# target: {fault}") in told_lines(finding, "target")
        assert marked_line(__file__, f"# golden: {fault}") in told_lines(finding, "golden")


def freely(_: str) -> None:
    """A layer that Adam trains, which no scale moves."""
    layer = Model().layers[0]
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05, eps=1e-15)
    for x, y in batches():
        loss = (layer(x) - y).square().mean()  # golden: doubled
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


def freely_ported(fault: str) -> None:
    weight = nn.Parameter(begun()[0].T.clone())
    optimizer = torch.optim.Adam([weight], lr=0.05, eps=1e-15)
    for x, y in batches():
        off = x @ weight - y
        loss = (off * off).sum() / off.numel() * (2 if fault else 1)  # target: doubled
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()


def test_a_multiple_that_only_the_optimizer_takes_back_is_told(tmp_path: Path) -> None:
    golden = recorded(freely, tmp_path / "golden")
    same = opscope.compare(recorded(freely_ported, tmp_path / "same"), golden)
    assert not same.document.findings
    run = recorded(freely_ported, tmp_path / "doubled", "doubled")
    [finding] = opscope.compare(run, golden).document.findings
    for side in ("target", "golden"):
        assert marked_line(__file__, f"# {side}: doubled") in told_lines(finding, side)
