# SPDX-License-Identifier: Apache-2.0
"""Running means of what has no mean: rounding, of which no fault that comes later is made."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.compare.told_lines import compared, labelled, told_lines
from torch import Tensor, nn

BATCHES = labelled(3, steps=3, size=(16, 6), classes=4)


class Normed(nn.Module):
    """A norm, a product that keeps its mean of 0, and another norm: torch's, or written out."""

    def __init__(self, *, own: bool) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.own = own
        self.first, self.second = nn.BatchNorm1d(6), nn.BatchNorm1d(10)
        self.wide, self.head = nn.Linear(6, 10, bias=False), nn.Linear(10, 4)

    def norm(self, x: Tensor, about: nn.BatchNorm1d) -> Tensor:
        if not self.own:
            return about(x)
        mean = x.mean(0)
        var = (x - mean).square().mean(0)
        with torch.no_grad():
            about.running_mean += 0.1 * (mean - about.running_mean)
            about.running_var += 0.1 * (var * len(x) / (len(x) - 1) - about.running_var)
        gain = about.weight * (var + about.eps).rsqrt()
        return x * gain + (about.bias - mean * gain)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.wide(self.norm(x, self.first)), self.second).relu())


def original(_: str) -> None:
    model, about = Normed(own=False), nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for rows, labels in BATCHES:
        optimizer.zero_grad()
        about(model(rows), labels).backward()
        optimizer.step()


def port(fault: str) -> None:
    model = Normed(own=True)
    for rows, labels in BATCHES:
        scores = model(rows).log_softmax(1)
        least = 0.1 / (3 if fault == "smoothing" else 4)
        soft = torch.full_like(scores, least)  # smoothed
        soft.scatter_(1, labels[:, None], 1 - (4 - 1) * least)  # smoothed
        loss = -(soft * scores).sum(1).mean()  # smoothed
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad)


def test_a_norm_that_is_written_out_is_silent(tmp_path: Path) -> None:
    document = compared((port, original), tmp_path).document
    assert (document.verdict, document.findings) == ("clean", ())


def test_a_loss_is_told_and_no_mean_of_nothing_before_it(tmp_path: Path) -> None:
    first = compared((port, original), tmp_path, "smoothing").findings[0]
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    told = [lines[line - 1] for line in sorted(told_lines(first, "target"))]
    assert any(line.endswith("# smoothed") for line in told), told
