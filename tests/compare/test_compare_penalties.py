# SPDX-License-Identifier: Apache-2.0
"""A loss that holds a penalty of the weights, beside an optimizer that decays them: the same
training, unless the penalty or the decay is another.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import Labelled, labelled, marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, ROWS, STEPS, CLASSES, DECAY = 8, 12, 3, 4, 0.05


def batches() -> list[Labelled]:
    return labelled(81, steps=STEPS, size=(ROWS, WIDE), classes=CLASSES)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(WIDE, WIDE, bias=False)
        self.two = nn.Linear(WIDE, CLASSES, bias=False)
        drawn = torch.Generator().manual_seed(82)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(0.4 * torch.randn(parameter.shape, generator=drawn))

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.tanh(self.one(x)))  # type: ignore[no-any-return]


def penalised(fault: str) -> None:
    """The weights' squares are in the loss, which is read out without them."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    read = []
    for x, labels in batches():
        entropy = nn.functional.cross_entropy(model(x), labels)
        squares = sum(parameter.square().sum() for parameter in model.parameters())
        if fault == "twice":
            squares = squares * 2  # twice
        if fault == "data":
            squares = squares + x.square().mean() * model.one.weight.sum()  # data
        optimizer.zero_grad()
        (entropy + squares * (DECAY / 2)).backward()
        optimizer.step()
        read.append(entropy.item())


def decayed(fault: str) -> None:
    """The same by an optimizer of this file, written out, that decays weights."""
    weights = dict(Model().named_parameters())
    velocity = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    rate = 0.1 if fault == "rate" else 0.2
    read = []
    for x, labels in batches():
        hidden = torch.tanh(x @ weights["one.weight"].t())
        scores = (hidden @ weights["two.weight"].t()).log_softmax(-1)
        entropy = -scores.gather(1, labels[:, None]).mean()
        gradients = torch.autograd.grad(entropy, list(weights.values()))
        with torch.no_grad():
            for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
                velocity[name] = 0.9 * velocity[name] + gradient + DECAY * weight
                weight.sub_(rate * velocity[name])  # rate
        read.append(entropy.item())


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(penalised, tmp_path_factory.mktemp("golden") / "run")


def test_a_penalty_is_a_decay(golden: Path, tmp_path: Path) -> None:
    port = recorded(decayed, tmp_path / "port")
    assert opscope.compare(port, golden).findings == ()
    assert opscope.compare(golden, port).findings == ()


@pytest.mark.parametrize("fault", ["twice", "data"])
def test_another_penalty_is_told(tmp_path: Path, fault: str) -> None:
    port = recorded(decayed, tmp_path / "port")
    first = opscope.compare(recorded(penalised, tmp_path / "run", fault), port).findings[0]
    assert first.step == 0


def test_another_rate_is_told_at_the_update(golden: Path, tmp_path: Path) -> None:
    first = opscope.compare(recorded(decayed, tmp_path / "port", "rate"), golden).findings[0]
    assert marked_line(__file__, "# rate") in told_lines(first, "target")
