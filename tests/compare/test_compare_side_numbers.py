# SPDX-License-Identifier: Apache-2.0
"""What a single number of a step tells: one that a gradient should flow back through, and one that
each program reads out while it counts other steps.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, BATCH, STEPS = 6, 5, 4


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Coded(nn.Module):
    """A code that is learned, and a commitment to it."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, 1)
        self.register_buffer("code", drawn(1, WIDE, seed=3))
        with torch.no_grad():
            for number, weight in enumerate(self.parameters()):
                weight.copy_(drawn(*weight.shape, seed=number))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.into(x))
        commitment = F.mse_loss(hidden, self.code.expand_as(hidden))  # golden: commitment
        return self.out(hidden), 0.5 * commitment


def coded(_: str) -> None:
    model = Coded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        guess, commitment = model(drawn(BATCH, WIDE, seed=step))
        loss = F.mse_loss(guess, drawn(BATCH, 1, seed=9)) + commitment
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()


def coded_by_hand(fault: str) -> None:
    model = Coded()
    weights = [weight.detach().clone().requires_grad_() for weight in model.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for step in range(STEPS):
        hidden = torch.tanh(drawn(BATCH, WIDE, seed=step) @ weights[0].T + weights[1])
        kept = hidden.detach() if fault else hidden
        commitment = (kept - model.code).square().mean()  # target: commitment
        off = hidden @ weights[2].T + weights[3] - drawn(BATCH, 1, seed=9)
        loss = off.square().mean() + 0.5 * commitment
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()


@pytest.mark.parametrize("fault", ["", "detached"])
def test_a_number_that_gradients_should_flow_back_through_is_named(
    tmp_path: Path, fault: str
) -> None:
    golden = recorded(coded, tmp_path / "golden")
    found = opscope.compare(recorded(coded_by_hand, tmp_path / "run", fault), golden).document
    assert found.verdict == ("found" if fault else "clean")
    for finding in found.findings:
        assert marked_line(__file__, "# target: commitment") in told_lines(finding, "target")
        assert marked_line(__file__, "# golden: commitment") in told_lines(finding, "golden")


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.value, self.policy = nn.Linear(WIDE, 1), nn.Linear(WIDE, WIDE)
        with torch.no_grad():
            for number, weight in enumerate(self.parameters()):
                weight.copy_(drawn(*weight.shape, seed=number))

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.value(torch.tanh(self.policy(x)))
        return value


def alternating(_: str) -> None:
    model = Critic()
    critic = torch.optim.SGD(model.value.parameters(), lr=0.1)
    policy = torch.optim.SGD(model.policy.parameters(), lr=0.1)
    for step in range(STEPS):
        x = drawn(BATCH, WIDE, seed=20 + step)
        loss = F.mse_loss(model(x), drawn(BATCH, 1, seed=9))
        critic.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        critic.step()
        loss.item()
        if step % 2:
            policy.zero_grad()
            (-model(x).mean()).backward()  # type: ignore[no-untyped-call]
            policy.step()


def updated(weights: list[Tensor], loss: Tensor) -> tuple[list[Tensor], float]:
    gradients = torch.autograd.grad(loss, weights)
    pairs = zip(weights, gradients, strict=True)
    return [(w.detach() - 0.1 * g).requires_grad_() for w, g in pairs], loss.item()


def alternating_by_hand(fault: str) -> None:
    """The same with weights that each update binds anew, and both numbers read out."""
    weights = [weight.detach().clone().requires_grad_() for weight in Critic().parameters()]
    critic, policy = weights[:2], weights[2:]

    def value(x: Tensor) -> Tensor:
        return torch.tanh(x @ policy[0].T + policy[1]) @ critic[0].T + critic[1]

    for step in range(STEPS):
        x = drawn(BATCH, WIDE, seed=20 + step)
        critic, _ = updated(critic, (value(x) - drawn(BATCH, 1, seed=9)).square().mean())
        if step % 2 == (0 if fault else 1):
            policy, _ = updated(policy, -value(x).mean())


@pytest.mark.parametrize("fault", ["", "other steps"])
def test_losses_are_held_against_each_other_where_one_side_reads_out_more(
    tmp_path: Path, fault: str
) -> None:
    golden = recorded(alternating, tmp_path / "golden")
    found = opscope.compare(recorded(alternating_by_hand, tmp_path / "run", fault), golden)
    assert found.document.verdict == ("found" if fault else "clean")


def summed(_: str) -> None:
    """Each step of two passes, of which the losses are read out, and an evaluation of the weights'
    average at last.
    """
    model, average = Critic(), Critic()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(2):
            x, y = drawn(2 + part, WIDE, seed=40 + 2 * step + part), drawn(2 + part, 1, seed=9)
            loss = F.mse_loss(model(x), y, reduction="sum") / 5
            loss.backward()  # type: ignore[no-untyped-call]
            loss.item()
        optimizer.step()  # golden: rate
        with torch.no_grad():
            for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(weight, 0.3)  # golden: average
    F.mse_loss(average(drawn(BATCH, WIDE, seed=60)), drawn(BATCH, 1, seed=9)).item()


def summed_at_once(fault: str) -> None:
    weights = [weight.detach().clone().requires_grad_() for weight in Critic().parameters()]
    average = [weight.detach() for weight in weights]

    def off(weights: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(x @ weights[2].T + weights[3]) @ weights[0].T + weights[1] - y

    for step in range(STEPS):
        costs = []
        for part in range(2):
            x, y = drawn(2 + part, WIDE, seed=40 + 2 * step + part), drawn(2 + part, 1, seed=9)
            costs.append(off(weights, x, y).square())
        loss = torch.cat(costs).mean()
        rate = 0.15 if fault == "rate" else 0.2
        gradients = torch.autograd.grad(loss, weights)
        weights = [
            (weight.detach() - rate * gradient).requires_grad_()  # target: rate
            for weight, gradient in zip(weights, gradients, strict=True)
        ]
        share = 0.4 if fault == "average" else 0.3
        pairs = zip(average, weights, strict=True)
        average = [
            mean + share * (weight.detach() - mean) for mean, weight in pairs
        ]  # target: average
        if fault != "unread":
            loss.item()
    if fault != "unread":
        off(average, drawn(BATCH, WIDE, seed=60), drawn(BATCH, 1, seed=9)).square().mean().item()


@pytest.mark.parametrize("fault", ["", "rate", "average", "unread"])
def test_losses_of_parts_of_a_batch_add_up_to_the_others(tmp_path: Path, fault: str) -> None:
    golden = recorded(summed, tmp_path / "golden")
    found = opscope.compare(recorded(summed_at_once, tmp_path / "run", fault), golden).document
    assert found.verdict == ("clean" if fault in {"", "unread"} else "found")
    assert found.complete
    for finding in found.findings:
        assert marked_line(__file__, f"# target: {fault}") in told_lines(finding, "target")
        assert marked_line(__file__, f"# golden: {fault}") in told_lines(finding, "golden")


def begun(member: int) -> tuple[Tensor, Tensor]:
    return drawn(WIDE, WIDE, seed=70 + member), drawn(WIDE, 1, seed=80 + member)


def one_after_the_other(_: str) -> None:
    """Two members of an ensemble."""
    for member in range(2):
        into, out = (weight.requires_grad_() for weight in begun(member))
        optimizer = torch.optim.SGD([into, out], lr=0.2)
        for step in range(STEPS):
            x, y = drawn(BATCH, WIDE, seed=90 + step), drawn(BATCH, 1, seed=9)
            loss = F.mse_loss(torch.tanh(x @ into) @ out, y)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            loss.item()


def at_once(fault: str) -> None:
    into, out = (torch.stack(weights) for weights in zip(begun(0), begun(1), strict=True))
    rate = 0.15 if fault else 0.2
    for step in range(STEPS):
        x, y = drawn(BATCH, WIDE, seed=90 + step), drawn(BATCH, 1, seed=9)
        into, out = into.requires_grad_(), out.requires_grad_()
        loss = (torch.tanh(x @ into) @ out - y).square().mean((1, 2)).sum()
        gradients = torch.autograd.grad(loss, [into, out])
        pairs = zip((into, out), gradients, strict=True)
        into, out = (weight.detach() - rate * gradient for weight, gradient in pairs)
        loss.item()


@pytest.mark.parametrize("fault", ["", "rate"])
def test_losses_of_one_training_after_the_other_add_up(tmp_path: Path, fault: str) -> None:
    golden = recorded(one_after_the_other, tmp_path / "golden")
    found = opscope.compare(recorded(at_once, tmp_path / "run", fault), golden).document
    assert (found.verdict, found.complete) == ("found" if fault else "clean", True)
