# SPDX-License-Identifier: Apache-2.0
"""Twin critics of one program that another computes as one, with an axis for the two; and a norm
that is written out once and called from several lines.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opscope

READ, WIDE, ROWS, STEPS = 6, 8, 10, 2


class Critic(nn.Module):
    """One of the twins."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(READ, WIDE), nn.Linear(WIDE, 1)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.out(F.layer_norm(F.relu(self.into(F.layer_norm(x, (READ,)))), (WIDE,)))
        return made


def batches() -> list[tuple[Tensor, Tensor]]:
    drawn = torch.Generator().manual_seed(4)
    return [
        (torch.randn(ROWS, READ, generator=drawn), torch.randn(ROWS, generator=drawn))
        for _ in range(STEPS)
    ]


def twins() -> tuple[Critic, Critic]:
    torch.manual_seed(3)
    return Critic(), Critic()


def normed(x: Tensor, power: float = 1.0) -> Tensor:
    """A layer norm, written out."""
    away = x - x.mean(-1, keepdim=True)
    return away / (away.square().mean(-1, keepdim=True) + 1e-5).sqrt() ** power


class Both(nn.Module):
    """The two at once."""

    def __init__(self, given: tuple[Critic, Critic], fault: str) -> None:
        super().__init__()
        self.fault = fault
        held = [
            torch.stack([weight.detach() for weight in pair])
            for pair in zip(*(critic.parameters() for critic in given), strict=True)
        ]
        self.held = nn.ParameterList(held)

    def forward(self, x: Tensor) -> Tensor:
        into, offset, out, last = self.held
        x = normed(x)
        x = torch.baddbmm(offset[:, None], x.expand(2, -1, -1), into.transpose(1, 2)).relu()
        x = normed(x, 0.9 if self.fault == "second" else 1.0)  # second
        made = torch.baddbmm(last[:, None], x, out.transpose(1, 2))[..., 0]
        return made * 1.1 if self.fault == "scaled" else made  # scaled


def trained(to: Path, fault: str | None) -> Path:
    """A recorded training of both critics."""
    with opscope.record(to, values="none"):
        given = twins()
        model = nn.ModuleList(given) if fault is None else Both(given, fault)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for x, wanted in batches():
            if fault is None:
                losses = [F.mse_loss(critic(x)[:, 0], wanted) for critic in given]
                loss = losses[0] + losses[1]
            else:
                loss = (model(x) - wanted).square().mean(-1).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return to


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("original") / "run", None)


def test_a_healthy_program_that_computes_twins_at_once_is_silent(
    original: Path, tmp_path: Path
) -> None:
    document = opscope.compare(trained(tmp_path / "run", ""), original).document
    assert (document.verdict, document.complete, document.findings) == ("clean", True, ())


@pytest.mark.parametrize("fault", ["second", "scaled"])
def test_its_fault_is_named_at_the_line_that_was_written_wrong(
    original: Path, tmp_path: Path, fault: str
) -> None:
    first = opscope.compare(trained(tmp_path / "run", fault), original).findings[0]
    text = Path(__file__).read_text().splitlines()
    here = next(at for at, line in enumerate(text, 1) if line.endswith(f"# {fault}"))
    named = [
        range(int(span[0]), int(span[-1]) + 1)
        for place in first.evidence[0]["target_lines"]
        for span in [place.rpartition(":")[2].split("-")]
    ]
    assert any(here in lines for lines in named), first
    assert sum(map(len, named)) <= 10
