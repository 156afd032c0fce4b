# SPDX-License-Identifier: Apache-2.0
"""A training of functions of weights beside one of modules, where an average of the weights is a
teacher from the first step on, batches are cut in two whose gradients the program adds up, and the
average is copied into the weights at the end of a step.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import labelled, recorded
from torch import Tensor, nn

import opscope

WIDE, ROWS, STEPS, CLASSES, RATE, KEPT = 8, 8, 4, 3, 0.05, 0.8
COPIED = 1  # the step at the end of which the average becomes the model


def batches() -> list[tuple[Tensor, Tensor]]:
    return labelled(81, steps=STEPS, size=(ROWS, WIDE), classes=CLASSES)


def model() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, CLASSES))
    drawn = torch.Generator().manual_seed(82)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=drawn))
    return net


def original(_: str) -> None:
    net = model()
    average = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9)
    for step, (x, labels) in enumerate(batches()):
        optimizer.zero_grad()
        for rows, wanted in zip(x.chunk(2), labels.chunk(2), strict=True):
            with torch.no_grad():
                taught = average(rows).softmax(-1)
            scores = net(rows)
            loss = F.cross_entropy(scores, wanted) + F.mse_loss(scores.softmax(-1), taught)
            (loss / 2).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            for kept, parameter in zip(average.parameters(), net.parameters(), strict=True):
                kept.mul_(KEPT).add_(parameter, alpha=1 - KEPT)
        if step == COPIED:
            net.load_state_dict(average.state_dict())


def scored(w: dict[str, Tensor], x: Tensor) -> Tensor:
    h = torch.tanh(x @ w["0.weight"].T + w["0.bias"])
    return h @ w["2.weight"].T + w["2.bias"]


def ported(fault: str) -> None:
    w = {name: value.clone().requires_grad_() for name, value in model().state_dict().items()}
    average = {name: value.detach().clone() for name, value in w.items()}
    speed = {name: torch.zeros_like(value) for name, value in w.items()}
    for step, (x, labels) in enumerate(batches()):
        grads = {name: torch.zeros(()) for name in w}
        for part in range(2):
            rows, wanted = x[4 * part :][:4], labels[4 * part :][:4]
            taught = scored(average, rows).detach().softmax(-1)
            logp = scored(w, rows).log_softmax(-1)
            loss = -logp[torch.arange(4), wanted].mean() + (logp.exp() - taught).square().mean()
            for name, gradient in zip(w, torch.autograd.grad(loss, [*w.values()]), strict=True):
                grads[name] = grads[name] + gradient / 2
        with torch.no_grad():
            for name, each in w.items():
                speed[name] = 0.9 * speed[name] + grads[name]
                each.sub_(RATE * speed[name])
                average[name].lerp_(each, 0.1 if fault else 1 - KEPT)  # target
                if step == COPIED:
                    each.copy_(average[name])


@pytest.mark.parametrize("fault", ["", "another average"])
def test_an_average_of_weights_is_none_of_the_weights(tmp_path: Path, fault: str) -> None:
    target, golden = recorded(ported, tmp_path / "a", fault), recorded(original, tmp_path / "b")
    document = opscope.compare(target, golden).document
    assert (document.verdict == "clean") == (not fault)
