# SPDX-License-Identifier: Apache-2.0
"""An evaluation that alone is apart: of an average of the weights, in steps that train alike."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, BATCH, STEPS, DECAY = 6, 5, 3, 0.9


def begun() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(WIDE, WIDE, generator=generator), torch.randn(1, WIDE, generator=generator)


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(4)
    return [
        (torch.randn(BATCH, WIDE, generator=generator), torch.randn(BATCH, 1, generator=generator))
        for _ in range(STEPS)
    ]


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(WIDE, WIDE, bias=False), nn.Linear(WIDE, 1, bias=False)
        with torch.no_grad():
            self.into.weight.copy_(begun()[0])
            self.out.weight.copy_(begun()[1])

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.out(torch.tanh(self.into(x)))
        return hidden


def original(_: str) -> None:
    model = Original()
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.mul_(DECAY).add_(new, alpha=1 - DECAY)  # golden: average
            F.mse_loss(average(x), y).item()


def applied(weights: list[Tensor], x: Tensor) -> Tensor:
    return torch.tanh(x @ weights[0].T) @ weights[1].T


def ported(fault: str) -> None:
    """The same without modules, with numbers of its own where it is well, or is not."""
    weights = [weight.clone().requires_grad_() for weight in begun()]
    averages = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for x, y in batches():
        loss = (applied(weights, x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()
        share = DECAY if fault == "average" else 1 - DECAY
        with torch.no_grad():
            averages = [
                torch.lerp(old, new, share)  # target: average
                for old, new in zip(averages, weights, strict=True)
            ]
            off = applied(averages, x) - y
            (off.abs() if fault == "metric" else off.square()).mean().item()
            if fault == "metrics":
                off.abs().max().item()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("golden") / "run")


@pytest.mark.parametrize("program", ["", "metric", "metrics"])
def test_other_numbers_that_are_read_out_accuse_nobody(
    golden: Path, tmp_path: Path, program: str
) -> None:
    assert not opscope.compare(
        recorded(ported, tmp_path / "run", program), golden
    ).document.findings


def test_an_average_of_the_weights_is_told_where_it_is_taken(golden: Path, tmp_path: Path) -> None:
    target = recorded(ported, tmp_path / "run", "average")
    finding = opscope.compare(target, golden).document.findings[0]
    assert marked_line(__file__, "# target: average") in told_lines(finding, "target")
    assert marked_line(__file__, "# golden: average") in told_lines(finding, "golden")


def evaluated_at_the_end(fault: str) -> None:
    """Trained by an optimizer, or by hand, which counts no step; evaluated when that is over."""
    model = Original()
    average = copy.deepcopy(model)
    by_hand = fault != "by an optimizer"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches():
        model.zero_grad()
        F.mse_loss(model(x), y).backward()  # type: ignore[no-untyped-call]
        share = DECAY if fault == "average" else 1 - DECAY
        with torch.no_grad():
            if by_hand:
                for weight in model.parameters():
                    weight.sub_(0.1 * weight.grad)
            else:
                optimizer.step()
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.copy_((1 - share) * old + share * new)  # end: average
    average.eval()
    with torch.no_grad():
        average(batches()[0][0])


@pytest.mark.parametrize("fault", ["", "average"])
def test_an_evaluation_behind_the_last_step_is_compared_whoever_counts_steps(
    tmp_path: Path, fault: str
) -> None:
    golden = recorded(evaluated_at_the_end, tmp_path / "golden", "by an optimizer")
    target = recorded(evaluated_at_the_end, tmp_path / "run", fault)
    document = opscope.compare(target, golden).document
    assert not any("has no step" in warning for warning in document.summary["warnings"])
    assert document.verdict == ("found" if fault else "clean")
    for finding in document.findings:
        assert marked_line(__file__, "# end: average") in told_lines(finding, "target")
        assert marked_line(__file__, "# end: average") in told_lines(finding, "golden")
