# SPDX-License-Identifier: Apache-2.0
"""Running statistics, which no loss shows before the model is evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import opscope

POINTS, STEPS = 10, 3


def head() -> nn.Sequential:
    """So many parameters that the statistics are few of them."""
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)), nn.Linear(8, 2))


class Original(nn.Module):
    """Points through convolutions of width one."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.norm, self.head = nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), head()

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.norm(self.wide(x.mT)).relu().amax(-1))
        return made


class Port(nn.Module):
    """The same through linear layers."""

    def __init__(self, momentum: float) -> None:
        super().__init__()
        self.point = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8, momentum=momentum), nn.ReLU())
        self.out = head()

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.out(self.point(x.flatten(0, 1)).unflatten(0, x.shape[:2]).amax(1))
        return made

    def load(self, held: dict[str, Tensor]) -> None:
        names = {"wide": "point.0", "norm": "point.1", "head": "out"}
        renamed = {}
        for name, one in held.items():
            layer, _, part = name.partition(".")
            renamed[f"{names[layer]}.{part}"] = one.squeeze(-1) if one.ndim == 3 else one
        self.load_state_dict(renamed)


def trained(to: Path, momentum: float | None) -> Path:
    held = torch.Generator().manual_seed(5)
    batches = [
        (torch.randn(4, POINTS, 3, generator=held), torch.randint(0, 2, (4,), generator=held))
        for _ in range(STEPS)
    ]
    torch.manual_seed(3)
    original = Original()
    with opscope.record(to, values="none"):
        model: Original | Port = original if momentum is None else Port(momentum)
        if isinstance(model, Port):
            model.load(original.state_dict())
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for given, wanted in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(given), wanted).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return to


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("original") / "run", None)


def test_statistics_that_are_kept_alike_are_silent(original: Path, tmp_path: Path) -> None:
    document = opscope.compare(trained(tmp_path / "run", 0.1), original).document
    assert (document.verdict, document.complete, document.findings) == ("clean", True, ())


def test_another_momentum_is_told_though_every_loss_agrees(original: Path, tmp_path: Path) -> None:
    first = opscope.compare(trained(tmp_path / "run", 0.3), original).findings[0]
    assert (first.op, first.step) == ("aten::native_batch_norm.default", 0)
    assert any("0.3, golden has 0.1" in reason for reason in first.reasons), first
