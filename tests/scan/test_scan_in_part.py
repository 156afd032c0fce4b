# SPDX-License-Identifier: Apache-2.0
"""Runs of which one kind of tensor, or some steps, were left out: nothing is made of what is not
there.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import opscope


class Masked(nn.Module):
    """Scores of which the diagonal is masked by -inf, which a log_softmax keeps and a backward pass
    reads again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.into(x) @ x.T
        scores = scores.masked_fill(torch.eye(len(x), dtype=torch.bool), -torch.inf)
        return nn.functional.cross_entropy(scores, (torch.arange(len(x)) + 1) % len(x))


def trained(model: nn.Module, *, count: int = 4) -> None:
    """Updates are written out, so that the next call of the model ends a step."""
    drawn = torch.Generator().manual_seed(1)
    for _ in range(count):
        loss = model(torch.randn(5, 4, generator=drawn))
        gradients = torch.autograd.grad(loss.sum(), list(model.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(model.parameters(), gradients, strict=True):
                weight.sub_(0.1 * gradient)


@pytest.mark.parametrize("io", ["output", "input", "both"])
def test_a_mask_is_one_whatever_was_left_out(tmp_path: Path, io: str) -> None:
    with opscope.record(tmp_path / "run", io=io):
        trained(Masked())
    assert not opscope.scan(tmp_path / "run").findings


def test_what_is_done_to_a_mask_is_no_overflow_where_results_were_left_out(tmp_path: Path) -> None:
    """As decays are masked: the device said that something left its range, which was inf before."""
    with opscope.record(tmp_path / "run", io="input"):
        mask = torch.ones(4, 4).tril() == 0
        far = torch.zeros(4, 4).masked_fill(mask, torch.inf)
        (far * torch.tensor(-0.5)).exp().nan_to_num().sum().item()
    assert not opscope.scan(tmp_path / "run").findings


def test_what_spreads_is_no_second_cause_where_nobody_knows_what_calls_read(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run", io="output"):
        x = torch.tensor([-1.0, 1.0]).log()
        (x.view(2, 1) * 2).sum().item()
    (finding,) = opscope.scan(tmp_path / "run").findings
    assert finding.op == "aten::log.default"


def test_the_call_that_ends_the_last_step_is_no_crash(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run", steps="0-1"):
        trained(Masked())
    assert not opscope.scan(tmp_path / "run").findings
