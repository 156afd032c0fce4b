# SPDX-License-Identifier: Apache-2.0
"""What fails in a backward pass: gradients of gradients, and the gradient of a call that failed
before and was hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import opscope
from opscope.run.finding import Finding


def only(program: Callable[[], object], place: Path) -> Finding:
    with opscope.record(place / "run"):
        program()
    (finding,) = opscope.scan(opscope.open_run(place / "run")).findings
    return finding


def gradient_of_a_power() -> None:
    x = nn.Parameter(torch.tensor([0.0, 1.0]))
    (gradient,) = torch.autograd.grad((x.abs() ** 1.5).sum(), x, create_graph=True)
    gradient.square().sum().backward()


def gradient_penalty_of_nothing() -> None:
    net = nn.Linear(2, 1)
    nn.init.zeros_(net.weight)
    x = torch.ones(3, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    (gradient.pow(2).sum(1).sqrt() - 1).square().mean().backward()


@pytest.mark.parametrize(
    ("program", "forward"),
    [(gradient_of_a_power, "aten::pow"), (gradient_penalty_of_nothing, "aten::sqrt")],
)
def test_a_gradient_of_a_gradient_names_the_forward_call(
    program: Callable[[], None], forward: str, tmp_path: Path
) -> None:
    finding = only(program, tmp_path)
    assert finding.phase == "backward"
    assert finding.forward is not None
    assert finding.forward.op.startswith(forward)
    assert str(finding.forward.source).startswith(__file__)


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_a_hidden_division_comes_before_its_gradient(
    reentrant: bool | None, tmp_path: Path
) -> None:
    def squashed(x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x / weight)

    weight = nn.Parameter(torch.zeros(2))
    x = torch.ones(2, requires_grad=True)
    run = (
        (lambda: squashed(x))
        if reentrant is None
        else (lambda: checkpoint(squashed, x, use_reentrant=reentrant))
    )
    finding = only(lambda: run().sum().backward(), tmp_path)
    assert (finding.phase, finding.op, finding.evidence[0]["reached"]) == (
        "forward",
        "aten::div.Tensor",
        "gradient",
    )
    assert all("div" in follower["call"] for follower in finding.evidence[0]["followed_by"])
