# SPDX-License-Identifier: Apache-2.0
"""What a model gives when it is evaluated after the last update of a step matters, too."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import Tensor, nn

import opscope

WIDE, STEPS = 6, 3


class Model(nn.Module):
    """A layer and a norm, which is written out on one side."""

    def __init__(self, *, written: bool) -> None:
        super().__init__()
        held = torch.Generator().manual_seed(11)
        self.into = nn.Parameter(torch.randn(WIDE, WIDE, generator=held) * 0.6)
        self.gain = nn.Parameter(torch.ones(WIDE))
        self.out = nn.Parameter(torch.randn(WIDE, generator=held) * 0.6)
        self.seen = torch.zeros(WIDE)  # no buffer, so it is judged by nothing else
        self.written = written

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(x @ self.into)
        if self.training:
            mean = x.mean(0)
            self.seen.lerp_(mean.detach(), 0.1)
        else:
            mean = self.seen
        return self.normed(x - mean) @ self.out

    def normed(self, x: Tensor) -> Tensor:
        if not self.written:
            return nn.functional.layer_norm(x, (WIDE,), self.gain)
        x = x - x.mean(-1, keepdim=True)
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.gain


def recorded(to: Path, *, written: bool, share: float = 1.0) -> Path:
    """A training; the average of its models, which takes over a share of what they keep, is
    evaluated in the step that it was made in.
    """
    held = torch.Generator().manual_seed(13)
    with opscope.record(to, values="none"):
        model = Model(written=written)
        average = copy.deepcopy(model)
        first = torch.optim.SGD([model.into], lr=0.1)
        second = torch.optim.SGD([model.gain, model.out], lr=0.1)
        for _ in range(STEPS):
            for optimizer in (first, first, second):  # the second ends no step
                x = torch.randn(5, WIDE, generator=held)
                model.zero_grad()
                (model(x) - 1).square().mean().backward()
                optimizer.step()
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.1)
            average.seen = torch.lerp(average.seen, model.seen, share)
            average.eval()(x)
    return to


def test_an_average_that_keeps_another_mean_shows_in_what_it_gives(tmp_path: Path) -> None:
    golden = recorded(tmp_path / "golden", written=False)
    healthy = recorded(tmp_path / "healthy", written=True)
    other = recorded(tmp_path / "other", written=True, share=0.2)
    assert opscope.compare(healthy, golden).findings == ()
    told = opscope.compare(other, golden).findings
    assert [finding.confidence for finding in told] == ["suspected"]
