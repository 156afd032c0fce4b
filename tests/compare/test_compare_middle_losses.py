# SPDX-License-Identifier: Apache-2.0
"""A loss that is what the other program computes on the way to its own: both lines are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, BATCH, STEPS = 6, 8, 2


def weights() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(3)
    return [torch.randn(WIDE, WIDE, generator=drawn) * 0.5 for _ in range(2)]


def batches() -> list[tuple[Tensor, Tensor]]:
    drawn = torch.Generator().manual_seed(4)
    sizes = (BATCH, WIDE)
    return [
        (torch.randn(sizes, generator=drawn), torch.randn(sizes, generator=drawn))
        for _ in range(STEPS)
    ]


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.images, self.texts = map(nn.Parameter, weights())

    def forward(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        scores = F.normalize(images @ self.images) @ F.normalize(texts @ self.texts).T
        return scores, scores.T


def original(_: str) -> None:
    model = Original()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, texts in batches():
        rows, columns = model(images, texts)
        right = torch.arange(BATCH)
        loss = (F.cross_entropy(rows, right) + F.cross_entropy(columns, right)) / 2  # golden: both
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def similar(images: Tensor, texts: Tensor, into: list[nn.Parameter], fault: str) -> Tensor:
    both = [given @ weight for given, weight in zip((images, texts), into, strict=True)]
    both = [given / given.square().sum(1, keepdim=True).sqrt() for given in both]
    scores = torch.einsum("iw,tw->it", *both)
    second = scores.log_softmax(1 if fault else 0).diagonal()  # target: both
    return -0.5 * (scores.log_softmax(1).diagonal() + second).mean()


def ported(fault: str) -> None:
    into = [nn.Parameter(weight) for weight in weights()]
    for images, texts in batches():
        loss = similar(images, texts, into, fault)
        gradients = torch.autograd.grad(loss, into)
        with torch.no_grad():
            for weight, gradient in zip(into, gradients, strict=True):
                weight.sub_(0.1 * gradient)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("golden") / "run")


def test_a_port_that_is_well_is_accused_of_nothing(golden: Path, tmp_path: Path) -> None:
    assert not opscope.compare(recorded(ported, tmp_path / "run"), golden).document.findings


def test_a_loss_that_is_met_on_the_way_is_told_on_both_lines(golden: Path, tmp_path: Path) -> None:
    """The entropy of the rows twice is what golden adds that of the columns to."""
    target = recorded(ported, tmp_path / "run", "rows")
    finding = opscope.compare(target, golden).document.findings[0]
    for side in ("target", "golden"):
        assert marked_line(__file__, f"# {side}: both") in told_lines(finding, side)
