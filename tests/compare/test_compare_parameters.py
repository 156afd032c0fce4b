# SPDX-License-Identifier: Apache-2.0
"""Parameters that one program holds as one, where they are not what the other's are: gains less 1, a
copy that is averaged beside what is trained, and a table without the row of its padding.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import compared, fitted, marked_line, told_lines
from torch import Tensor, nn

WIDE, BATCH, STEPS, WORDS, KEPT, RATE = 6, 5, 3, 9, 0.7, 0.1


def begun() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(25)
    return [torch.randn(WIDE, WIDE, generator=drawn) * 0.6 for _ in range(2)]


def batches() -> list[tuple[Tensor, Tensor]]:
    return fitted(26, steps=STEPS, rows=BATCH, wide=WIDE, out=WIDE)


class Layer(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.gain, self.weight = nn.Parameter(torch.ones(WIDE)), nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * torch.rsqrt(x.square().mean(1, keepdim=True)) * self.gain) @ (
            self.weight
        )


def model() -> nn.Sequential:
    return nn.Sequential(*map(Layer, begun()))


def gained(_: str) -> None:
    """Each norm with a gain of its own, which begins as 1."""
    net = model()
    sgd = torch.optim.SGD(net.parameters(), lr=RATE)
    for x, y in batches():
        loss = nn.functional.mse_loss(net(x), y)
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()  # golden: rate
        loss.item()


def gained_less_one(fault: str) -> None:
    """The gains of all norms in one tensor, each less 1."""
    gains = torch.zeros(2, WIDE, requires_grad=True)
    weights = [weight.requires_grad_() for weight in begun()]
    rate = 2 * RATE if fault == "rate" else RATE
    for x, y in batches():
        h = x
        for gain, weight in zip(gains.unbind(), weights, strict=True):
            h = torch.tanh(h / h.square().mean(1, keepdim=True).sqrt() * (1 + gain)) @ weight
        loss = (h - y).square().mean()
        grads = torch.autograd.grad(loss, [gains, *weights])
        with torch.no_grad():
            for held, grad in zip([gains, *weights], grads, strict=True):
                held.sub_(rate * grad)  # target: rate
        loss.item()


def averaged(_: str) -> None:
    """A model, and a copy of it that follows and teaches."""
    net = model()
    teacher = copy.deepcopy(net)
    sgd = torch.optim.SGD(net.parameters(), lr=RATE)
    for x, y in batches():
        out = net(x)
        with torch.no_grad():
            calm = teacher(x)
        loss = nn.functional.mse_loss(out, y) + nn.functional.mse_loss(out, calm)
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()
        with torch.no_grad():
            for held, trained in zip(teacher.parameters(), net.parameters(), strict=True):
                held.sub_((1 - KEPT) * (held - trained))  # golden: kept
        loss.item()


def flatly_averaged(fault: str) -> None:
    """What is trained is one tensor, what follows it another."""
    held = [tensor for weight in begun() for tensor in (torch.ones(WIDE), weight.flatten())]
    sizes = [len(tensor) for tensor in held]
    flat = torch.cat(held)
    student, teacher = flat.clone().requires_grad_(), flat.clone()
    sgd = torch.optim.SGD([student], lr=RATE)
    kept = 0.5 * KEPT if fault == "kept" else KEPT

    def run(weights: Tensor, x: Tensor) -> Tensor:
        parts = weights.split(sizes)
        for gain, weight in zip(parts[::2], parts[1::2], strict=True):
            x = torch.tanh(x / x.square().mean(1, keepdim=True).sqrt() * gain) @ (
                weight.view(WIDE, WIDE)
            )
        return x

    for x, y in batches():
        with torch.no_grad():
            calm = run(teacher, x)
        out = run(student, x)
        loss = ((out - y).square() + (out - calm).square()).mean()
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()
        teacher.lerp_(student.detach(), 1 - kept)  # target: kept
        loss.item()


def words() -> list[tuple[Tensor, Tensor]]:
    drawn = torch.Generator().manual_seed(27)
    return [
        (
            torch.randint(1, WORDS, (BATCH,), generator=drawn),
            torch.randn(BATCH, WIDE, generator=drawn),
        )
        for _ in range(STEPS)
    ]


class Reader(nn.Module):
    """A table with a row for the padding, and two biases, each as long, in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDE, padding_idx=0)
        self.out, self.biases = nn.Parameter(begun()[1]), nn.Parameter(torch.zeros(2, WIDE))
        with torch.no_grad():
            self.table.weight[1:] = begun()[0].repeat(2, 1)[: WORDS - 1]

    def forward(self, read: Tensor) -> Tensor:
        h = torch.tanh(self.table(read) + self.biases[0])  # golden: row
        return h @ self.out.T + self.biases[1]


def padded(_: str) -> None:
    net = Reader()
    adam = torch.optim.Adam(net.parameters(), lr=RATE)
    for read, y in words():
        loss = nn.functional.mse_loss(net(read), y)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        loss.item()


def unpadded(fault: str) -> None:
    """Without a row for the padding."""
    table = begun()[0].repeat(2, 1)[: WORDS - 1].clone().requires_grad_()
    first, last = (torch.zeros(WIDE, requires_grad=True) for _ in range(2))
    weight = begun()[1].requires_grad_()
    adam = torch.optim.Adam([table, first, last, weight], lr=RATE)
    for read, y in words():
        h = table[read - 2 if fault == "row" else read - 1]  # target: row
        loss = (torch.addmm(last, torch.tanh(first + h), weight.T) - y).square().mean()
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        loss.item()


PAIRS = {
    "rate": (gained_less_one, gained),
    "kept": (flatly_averaged, averaged),
    "row": (unpadded, padded),
}


@pytest.mark.parametrize("fault", PAIRS)
def test_parameters_that_are_held_otherwise_are_nothing(tmp_path: Path, fault: str) -> None:
    comparison = compared(PAIRS[fault], tmp_path)
    assert not comparison.document.findings


@pytest.mark.parametrize("fault", PAIRS)
def test_what_is_made_of_them_otherwise_is_told(tmp_path: Path, fault: str) -> None:
    comparison = compared(PAIRS[fault], tmp_path, fault)
    finding = comparison.document.findings[0]
    for side in ("target", "golden"):
        assert marked_line(__file__, f"# {side}: {fault}") in told_lines(finding, side)
