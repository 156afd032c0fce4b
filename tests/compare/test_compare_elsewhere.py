# SPDX-License-Identifier: Apache-2.0
"""Programs that do in one place what others do in another: a loss that is divided beside gradients
that are, a decay beside a penalty, an operator that is left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import compared, labelled, marked_line, told_lines
from torch import Tensor, nn
from torch.nn import functional as F

WIDE, ROWS, CLASSES, STEPS, PARTS, RATE, DECAY = 8, 6, 2, 4, 2, 0.1, 0.05


def batches() -> list[tuple[Tensor, Tensor]]:
    return labelled(27, steps=STEPS * PARTS, size=(ROWS, WIDE), classes=CLASSES)


def net() -> nn.Sequential:
    torch.manual_seed(28)
    return nn.Sequential(nn.Linear(WIDE, 12), nn.Tanh(), nn.Linear(12, CLASSES))


def divided(_: str) -> None:
    model = net()
    sgd = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, nesterov=True)
    rows = iter(batches())
    for _ in range(STEPS):
        sgd.zero_grad()
        for _, (x, y) in zip(range(PARTS), rows, strict=False):
            loss = F.cross_entropy(model(x), y) / PARTS  # golden: undivided
            loss.backward()  # type: ignore[no-untyped-call]
            loss.item()
        sgd.step()  # golden: heavy


def gradients_divided(fault: str) -> None:
    model = net()
    parameters = [*model.parameters()]
    velocity, rows = [torch.zeros_like(each) for each in parameters], iter(batches())
    share = 1 if fault == "undivided" else PARTS
    for _ in range(STEPS):
        summed = [torch.zeros_like(each) for each in parameters]
        for _, (x, y) in zip(range(PARTS), rows, strict=False):
            scores = model(x)
            loss = F.binary_cross_entropy_with_logits(scores[:, 1] - scores[:, 0], y.float())
            gradients = torch.autograd.grad(loss, parameters)
            summed = [a + b / share for a, b in zip(summed, gradients, strict=True)]  # undivided
            loss.item()
        with torch.no_grad():
            for p, v, g in zip(parameters, velocity, summed, strict=True):
                v.mul_(0.9).add_(g)
                p.sub_(RATE * (v if fault == "heavy" else g + 0.9 * v))  # heavy


def decayed(_: str) -> None:
    model = net()
    sgd = torch.optim.SGD(model.parameters(), lr=RATE, weight_decay=DECAY)
    for x, y in batches():
        loss = F.cross_entropy(model(x), y)
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()  # golden: doubled


def penalised(fault: str) -> None:
    model = net()
    parameters = [*model.parameters()]
    for x, y in batches():
        share = 1.0 if fault == "doubled" else 0.5
        penalty = torch.stack([each.square().sum() for each in parameters]).sum()
        loss = F.cross_entropy(model(x), y) + DECAY * share * penalty  # doubled
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, g in zip(parameters, gradients, strict=True):
                p.sub_(RATE * g)


def scaled(_: str) -> None:
    model = net()
    sgd = torch.optim.SGD(model.parameters(), lr=RATE)
    spread = torch.linspace(0.5, 2.0, WIDE)
    for x, y in batches():
        loss = F.cross_entropy(model((x - 0.3) / spread), y)  # golden: unscaled
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()


def prepared(fault: str) -> None:
    model = net()
    sgd = torch.optim.SGD(model.parameters(), lr=RATE)
    spread = torch.linspace(0.5, 2.0, WIDE)
    for x, y in batches():
        given = x - 0.3  # unscaled
        if fault != "unscaled":
            given = given / spread
        loss = F.nll_loss(torch.log_softmax(model(given.view(ROWS, 1, WIDE)), -1)[:, 0], y)
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()


PROGRAMS = {
    "undivided": (gradients_divided, divided),
    "heavy": (gradients_divided, divided),
    "doubled": (penalised, decayed),
    "unscaled": (prepared, scaled),
}


@pytest.mark.parametrize("fault", ["heavy", "doubled", "unscaled"])
def test_what_is_done_elsewhere_is_nothing(tmp_path: Path, fault: str) -> None:
    port, original = PROGRAMS[fault]
    assert not compared((port, original), tmp_path / "port").document.findings
    assert not compared((original, port), tmp_path / "original").document.findings


@pytest.mark.parametrize("fault", PROGRAMS)
def test_both_places_are_told(tmp_path: Path, fault: str) -> None:
    finding = compared(PROGRAMS[fault], tmp_path, fault).document.findings[0]
    assert marked_line(__file__, f"# {fault}") in told_lines(finding, "target")
    assert marked_line(__file__, f"# golden: {fault}") in told_lines(finding, "golden")
