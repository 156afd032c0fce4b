# SPDX-License-Identifier: Apache-2.0
"""Which of the places at which two programs may part is told: where nothing agrees again, though a
model goes on to compute from others that are only written otherwise.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, LONG, STEPS = 6, 9, 3


def begun() -> Tensor:
    return torch.randn(WIDE, WIDE, generator=torch.Generator().manual_seed(21))


def batches() -> list[tuple[Tensor, Tensor]]:
    drawn = torch.Generator().manual_seed(22)
    return [
        (
            torch.randn(LONG, WIDE, generator=drawn),
            torch.randint(LONG - 1, (LONG,), generator=drawn),
        )
        for _ in range(STEPS)
    ]


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDE, WIDE, bias=False)
        with torch.no_grad():
            self.project.weight.copy_(begun())

    def forward(self, x: Tensor, others: Tensor) -> Tensor:
        h = self.project(x)
        unit = h / h.norm(dim=1, keepdim=True)
        others = others + (others >= torch.arange(LONG)).long()  # golden: others
        return (unit * unit[others]).sum(1)


def original(_: str) -> None:
    model = Original()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for x, others in batches():
        optimizer.zero_grad()
        model(x, others).exp().mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def ported(fault: str) -> None:
    """The same with all pairs, of which some are taken, and a projection that is twice as long."""
    weight = begun().t().clone().requires_grad_()
    for x, others in batches():
        h = (2 * x) @ weight  # target: longer
        unit = h / h.square().sum(1, keepdim=True).sqrt()
        alike = unit @ unit.t()
        skipped = others if fault else torch.where(others < torch.arange(LONG), others, others + 1)
        taken = alike.gather(1, skipped[:, None])[:, 0]  # target: others
        (grad,) = torch.autograd.grad(taken.exp().sum() / LONG, [weight])
        with torch.no_grad():
            weight.sub_(0.5 * grad)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("golden") / "run")


def test_all_pairs_beside_those_that_are_taken_are_nothing(golden: Path, tmp_path: Path) -> None:
    assert not opscope.compare(recorded(ported, tmp_path / "run"), golden).document.findings


def test_a_choice_is_told_before_a_layer_that_is_only_written_otherwise(
    golden: Path, tmp_path: Path
) -> None:
    target = recorded(ported, tmp_path / "run", "others")
    finding = opscope.compare(target, golden).document.findings[0]
    assert marked_line(__file__, "# target: others") in told_lines(finding, "target")
    assert marked_line(__file__, "# golden: others") in told_lines(finding, "golden")
    assert marked_line(__file__, "# target: longer") not in told_lines(finding, "target")
