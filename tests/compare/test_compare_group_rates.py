# SPDX-License-Identifier: Apache-2.0
"""A few of many parameters that have another learning rate than golden's, by an optimizer that is
written otherwise: the update is told, with how far they move.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import Labelled, labelled, marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, ROWS, STEPS, LAYERS, CLASSES, RATE = 12, 10, 3, 8, 4, 2e-3


def batches() -> list[Labelled]:
    return labelled(72, steps=STEPS, size=(ROWS, WIDE), classes=CLASSES)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDE, WIDE) for _ in range(LAYERS)])
        self.head = nn.Linear(WIDE, CLASSES)
        drawn = torch.Generator().manual_seed(71)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=drawn))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.head(x)  # type: ignore[no-any-return]


def original(_: str) -> None:
    model = Model()
    groups = [
        {"params": model.layers.parameters(), "lr": RATE},
        {"params": model.head.parameters(), "lr": 10 * RATE},
    ]
    optimizer = torch.optim.Adam(groups, foreach=False)
    for x, labels in batches():
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()  # golden


class Adam:
    """The same with moments in one place, whose corrections are made to the rate."""

    def __init__(self, rates: dict[nn.Parameter, float]) -> None:
        self._rates, self._count = rates, 0
        self._moments = {
            parameter: (torch.zeros_like(parameter), torch.zeros_like(parameter))
            for parameter in rates
        }

    @torch.no_grad()
    def update(self, gradients: tuple[Tensor, ...]) -> None:
        self._count += 1
        root = (1 - 0.999**self._count) ** 0.5
        for (parameter, rate), gradient in zip(self._rates.items(), gradients, strict=True):
            first, second = self._moments[parameter]
            first.lerp_(gradient, 0.1)
            second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            scaled = first / (second.sqrt() + 1e-8 * root)
            parameter.sub_(scaled * (rate * root / (1 - 0.9**self._count)))  # target


def ported(fault: str) -> None:
    model = Model()
    head = set(model.head.parameters())
    rate = RATE if fault else 10 * RATE
    optimizer = Adam({each: rate if each in head else RATE for each in model.parameters()})
    for x, labels in batches():
        logits = model(x).log_softmax(-1)
        loss = -logits.gather(1, labels[:, None]).mean()
        optimizer.update(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("fault", ["", "one rate for all"])
def test_a_group_of_another_rate_is_told_at_its_update(tmp_path: Path, fault: str) -> None:
    target, golden = recorded(ported, tmp_path / "a", fault), recorded(original, tmp_path / "b")
    document = opscope.compare(target, golden).document
    if not fault:
        assert (document.verdict, document.findings) == ("clean", ())
        return
    (told,) = document.findings
    assert told.step == 0
    assert "parameters move 0.1 times as far as golden's" in told.reasons[0]
    assert marked_line(__file__, "# target") in told_lines(told, "target")
    assert marked_line(__file__, "# golden") in told_lines(told, "golden")
