# SPDX-License-Identifier: Apache-2.0
"""Two backward passes for each update, of which the first climbs: of what a port computes anew,
the last update, which nothing reads, is told from what only looks like one.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tests.compare.told_lines import compared, labelled
from torch import Tensor, nn
from torch.func import functional_call, grad

BATCHES = labelled(21, steps=4, size=(8, 5), classes=3)
RATE, REACH, DECAY, MOMENTUM = 0.1, 0.05, 1e-3, 0.9
Held = dict[str, Tensor]


def network() -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def original(_: str) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=DECAY)
    for rows, labels in BATCHES:
        nn.functional.cross_entropy(model(rows), labels).backward()
        held = [one.detach().clone() for one in model.parameters()]
        size = torch.stack([one.grad.norm() for one in model.parameters()]).norm()
        with torch.no_grad():
            for one in model.parameters():
                one.add_(one.grad * (REACH / (size + 1e-12)))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(rows), labels).backward()
        with torch.no_grad():
            for one, before in zip(model.parameters(), held, strict=True):
                one.copy_(before)
        optimizer.step()
        optimizer.zero_grad()


def port(_: str) -> None:
    model = network()
    weights: Held = {name: one.detach() for name, one in model.named_parameters()}
    speed = {name: torch.zeros_like(one) for name, one in weights.items()}

    def lost(weights: Held, rows: Tensor, labels: Tensor) -> Tensor:
        scores = functional_call(model, weights, (rows,))
        return nn.functional.cross_entropy(scores, labels)

    for rows, labels in BATCHES:
        slopes = grad(lost)(weights, rows, labels)
        size = torch.cat([one.flatten() for one in slopes.values()]).norm()
        reach = REACH / (size + 1e-12)
        worst = {name: one + reach * slopes[name] for name, one in weights.items()}
        slopes = grad(lost)(worst, rows, labels)
        speed = {
            name: MOMENTUM * one + (slopes[name] + DECAY * weights[name])
            for name, one in speed.items()
        }
        weights = {name: one - RATE * speed[name] for name, one in weights.items()}


def test_what_climbs_before_it_steps_is_silent(tmp_path: Path) -> None:
    document = compared((port, original), tmp_path).document
    assert (document.verdict, document.findings) == ("clean", ())
