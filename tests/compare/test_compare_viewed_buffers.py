# SPDX-License-Identifier: Apache-2.0
"""A buffer of which two versions of one model take their parts by other views."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

import opscope

ROWS, LENGTH = 3, 5


class Typed(nn.Module):
    """Embeddings of words and of their kinds, which are all the same."""

    def __init__(self, *, newer: bool, bias: float) -> None:
        super().__init__()
        self.newer, self.bias = newer, bias
        self.words, self.kinds = nn.Embedding(11, 8), nn.Embedding(2, 8)
        self.out = nn.Linear(8, 1)
        self.register_buffer("ids", torch.zeros(1, 16, dtype=torch.int64))

    def forward(self, words: Tensor) -> Tensor:
        if self.newer:
            kinds = self.ids.expand(1, -1).gather(1, torch.arange(LENGTH)[None])
            x = (self.words(words) + self.kinds(kinds)).square()
        else:
            kinds = self.ids[:, :LENGTH].expand(ROWS, LENGTH)
            x = self.words(words) + self.kinds(kinds)
            x = x * x
        made: Tensor = self.out(x + self.bias)
        return made


def recorded(to: Path, *, newer: bool, bias: float = 0.0) -> Path:
    torch.manual_seed(0)
    model = Typed(newer=newer, bias=bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    words = torch.arange(ROWS * LENGTH).reshape(ROWS, LENGTH) % 11
    with opscope.record(to, values="none"):
        for _ in range(2):
            optimizer.zero_grad()
            model(words).mean().backward()
            optimizer.step()
    return to


def test_another_view_of_a_buffer_is_no_difference(tmp_path: Path) -> None:
    target, golden = recorded(tmp_path / "new", newer=True), recorded(tmp_path / "old", newer=False)
    assert opscope.compare(target, golden).findings == ()


def test_what_is_computed_otherwise_is_still_told(tmp_path: Path) -> None:
    target = recorded(tmp_path / "new", newer=True, bias=0.5)
    findings = opscope.compare(target, recorded(tmp_path / "old", newer=False)).findings
    assert [finding.op for finding in findings] == ["aten::add.Tensor"]
