# SPDX-License-Identifier: Apache-2.0
"""Parameters that a program computes anew in each step, as functions of weights in a dictionary do:
they are known by what a backward pass goes through, though nothing names them and nothing is
written in place; also where they are those of all layers, or of all members, stacked.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import compared, fitted, marked_line, told_lines
from torch import Tensor, nn

WIDE, BATCH, STEPS, LAYERS, MEMBERS, RATE, KEPT = 6, 8, 4, 3, 2, 0.05, 0.6
KINDS = ("up", "shift", "gate", "bend", "scale", "down")


def begun(seed: int = 31) -> list[Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    sizes = [(WIDE, WIDE) if kind in ("up", "gate", "down") else (WIDE,) for kind in KINDS * LAYERS]
    return [0.4 * torch.randn(size, generator=drawn) for size in sizes]


def batches() -> list[tuple[Tensor, Tensor]]:
    return fitted(32, steps=STEPS, rows=BATCH, wide=WIDE, out=WIDE)


class Layer(nn.Module):
    def __init__(self, held: list[Tensor]) -> None:
        super().__init__()
        self.held = nn.ParameterList(held)

    def forward(self, x: Tensor) -> Tensor:
        up, shift, gate, bend, scale, down = self.held
        made = torch.tanh(x @ up + shift) * torch.sigmoid(x @ gate + bend)  # golden: gate
        return x + (made * scale) @ down


def model(seed: int = 31) -> nn.Sequential:
    held, each = begun(seed), len(KINDS)
    return nn.Sequential(*(Layer(held[each * at :][:each]) for at in range(LAYERS)))


def modules(_: str) -> None:
    net = model()
    sgd = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9)
    for x, y in batches():
        loss = nn.functional.mse_loss(net(x), y)
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()  # golden: rate
        loss.item()


def stacked(held: list[Tensor]) -> dict[str, Tensor]:
    """Of each kind the weights of all layers in one tensor."""
    return {kind: torch.stack(held[at :: len(KINDS)]) for at, kind in enumerate(KINDS)}


def run(w: dict[str, Tensor], x: Tensor, fault: str = "") -> Tensor:
    for at in range(LAYERS):
        wide = torch.addmm(w["bend"][at], x, w["gate"][at])
        gate = torch.tanh(wide) if fault == "gate" else torch.sigmoid(wide)  # target: gate
        made = gate * torch.tanh(torch.addmm(w["shift"][at], x, w["up"][at]))
        x = torch.addmm(x, made * w["scale"][at], w["down"][at])
    return x


def functions(fault: str) -> None:
    """Weights of all layers stacked, two rows at a time, and updates that make new tensors."""
    w, rate = stacked(begun()), 2 * RATE if fault == "rate" else RATE
    speed = {kind: torch.zeros_like(value) for kind, value in w.items()}
    for x, y in batches():
        leaves = {kind: value.detach().requires_grad_() for kind, value in w.items()}
        total = 0.0
        for rows, wanted in zip(x.split(2), y.split(2), strict=True):
            loss = (run(leaves, rows, fault) - wanted).square().sum() / y.numel()
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        for kind, leaf in leaves.items():
            assert leaf.grad is not None
            speed[kind] = 0.9 * speed[kind] + leaf.grad
            w[kind] = w[kind] - rate * speed[kind]  # target: rate


def members(_: str) -> None:
    """An ensemble, one member after the other, each with an optimizer of its own."""
    nets = [model(seed) for seed in range(MEMBERS)]
    steps = [torch.optim.SGD(net.parameters(), lr=RATE) for net in nets]
    for x, y in batches():
        for net, sgd in zip(nets, steps, strict=True):
            loss = (net(x) - y).abs().pow(3).mean()  # golden: cube
            sgd.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            sgd.step()


def fleet(fault: str) -> None:
    """The members stacked, and their gradients made at once; nothing reads the last weights."""
    each = [stacked(begun(seed)) for seed in range(MEMBERS)]
    w = {kind: torch.stack([held[kind] for held in each]) for kind in KINDS}

    def lost(held: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        off = (run(held, x) - y).square()
        return off.mean() if fault == "cube" else (off * off.sqrt()).mean()  # target: cube

    graded = torch.func.vmap(torch.func.grad(lost), in_dims=(0, None, None))
    for x, y in batches():
        w = {kind: w[kind] - RATE * grad for kind, grad in graded(w, x, y).items()}


def taught(_: str) -> None:
    """A teacher into which the average is copied, behind the optimizer's step."""
    net = model()
    teacher = copy.deepcopy(net).requires_grad_(requires_grad=False)
    sgd = torch.optim.SGD(net.parameters(), lr=RATE)
    for at, (x, y) in enumerate(batches()):
        loss = nn.functional.mse_loss(net(x), y) + nn.functional.mse_loss(net(x), teacher(x))
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), net.parameters(), strict=True):
                slow.copy_(KEPT / (at + 1) * slow + (1 - KEPT / (at + 1)) * fast)  # golden: kept


def taught_in_place(fault: str) -> None:
    student = [held.clone().requires_grad_() for held in begun()]
    teacher = begun()
    for at, (x, y) in enumerate(batches()):
        out = run(stacked(student), x)
        loss = ((out - y).square() + (out - run(stacked(teacher), x)).square()).mean()
        kept = KEPT / (at + (2 if fault == "kept" else 1))
        with torch.no_grad():
            grads = torch.autograd.grad(loss, student)
            for slow, fast, grad in zip(teacher, student, grads, strict=True):
                fast.sub_(RATE * grad)
                slow.lerp_(fast, 1 - kept)  # target: kept


PAIRS = {
    "gate": (functions, modules),
    "rate": (functions, modules),
    "cube": (fleet, members),
    "kept": (taught_in_place, taught),
}


@pytest.mark.parametrize("fault", PAIRS)
def test_weights_that_are_computed_anew_are_nothing(tmp_path: Path, fault: str) -> None:
    comparison = compared(PAIRS[fault], tmp_path)
    document = comparison.document
    assert (document.complete, document.findings) == (True, ())


@pytest.mark.parametrize("fault", PAIRS)
def test_what_they_are_computed_of_is_told(tmp_path: Path, fault: str) -> None:
    comparison = compared(PAIRS[fault], tmp_path, fault)
    finding = comparison.document.findings[0]
    for side in ("target", "golden"):
        assert marked_line(__file__, f"# {side}: {fault}") in told_lines(finding, side)
