# SPDX-License-Identifier: Apache-2.0
"""An ensemble that one program trains member by member and the other at once: one reads out the loss
of each member, the other their mean, and how far they spread.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tests.compare.told_lines import fitted, marked_line, recorded, told_lines
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

import opscope

MEMBERS, WIDE, BATCH, STEPS, RATE = 3, 5, 8, 4, 0.1


def begun() -> dict[str, Tensor]:
    """The weights of all members, one behind the other."""
    drawn = torch.Generator().manual_seed(35)
    sizes = {"into": (MEMBERS, WIDE, WIDE), "out": (MEMBERS, WIDE, 1)}
    return {name: torch.randn(*size, generator=drawn) * 0.6 for name, size in sizes.items()}


def batches() -> list[tuple[Tensor, Tensor]]:
    return fitted(36, steps=STEPS, rows=BATCH, wide=WIDE, out=1)


class Member(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.into, self.out = (nn.Parameter(held[number].clone()) for held in begun().values())

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.into) @ self.out


def one_by_one(_: str) -> None:
    members = [Member(number) for number in range(MEMBERS)]
    trained = [torch.optim.SGD(member.parameters(), lr=RATE) for member in members]
    for x, y in batches():
        for member, sgd in zip(members, trained, strict=True):
            loss = nn.functional.mse_loss(member(x), y)
            sgd.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            sgd.step()  # golden: rate
            loss.item()


def at_once(fault: str) -> None:
    weights, rate = begun(), 2 * RATE if fault == "rate" else RATE

    def loss_of(held: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return (torch.tanh(x @ held["into"]) @ held["out"] - y).square().mean()

    for x, y in batches():
        grads, losses = vmap(grad_and_value(loss_of), in_dims=(0, None, None))(weights, x, y)
        for name, held in weights.items():
            weights[name] = held - rate * grads[name]  # target: rate
        losses.mean().item()
        losses.std().item()


def whole(_: str) -> None:
    net = Member(0)
    sgd = torch.optim.SGD(net.parameters(), lr=RATE)
    for x, y in batches():
        loss = nn.functional.mse_loss(net(x), y)
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()
        loss.item()


def in_parts(_: str) -> None:
    """Two parts of a batch, and one vector that takes the parameters' place, so that no step and
    no update shows; the norm of its gradient is read out, too.
    """
    net = Member(0)
    held = [*net.parameters()]
    for x, y in batches():
        total = torch.zeros(sum(map(torch.numel, held)))
        for rows, wanted in zip(x.chunk(2), y.chunk(2), strict=True):
            loss = (net(rows) - wanted).square().sum() / BATCH
            total += torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, held)])
            loss.item()
        total.norm().item()
        with torch.no_grad():
            vector = nn.utils.parameters_to_vector(held) - RATE * total
            nn.utils.vector_to_parameters(vector, held)


def test_losses_of_parts_are_found_beside_metrics(tmp_path: Path) -> None:
    target, golden = recorded(in_parts, tmp_path / "run"), recorded(whole, tmp_path / "old")
    document = opscope.compare(target, golden).document
    assert (document.complete, document.findings) == (True, ())


def test_a_metric_between_the_means_of_losses_is_nothing(tmp_path: Path) -> None:
    target, golden = recorded(at_once, tmp_path / "run"), recorded(one_by_one, tmp_path / "old")
    assert not opscope.compare(target, golden).document.findings


def test_what_is_computed_otherwise_is_told(tmp_path: Path) -> None:
    target = recorded(at_once, tmp_path / "run", "rate")
    finding = opscope.compare(target, recorded(one_by_one, tmp_path / "old")).document.findings[0]
    for side in ("target", "golden"):
        assert marked_line(__file__, f"# {side}: rate") in told_lines(finding, side)
