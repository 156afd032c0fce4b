# SPDX-License-Identifier: Apache-2.0
"""Long trainings of which the last steps alone were kept: what the first of these finds is the work
of steps that are not there.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import opscope

STEPS = 6


def trained(to: Path, *, keep: str, nudge: float = 0.0, slope: float = 0.0) -> Path:
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(slope), nn.Linear(8, 3))
    with torch.no_grad():
        net[0].weight.mul_(1 + nudge)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    drawn = torch.Generator().manual_seed(8)
    with opscope.record(to, keep=keep):
        for _ in range(STEPS):
            x, y = torch.randn(10, 6, generator=drawn), torch.randint(3, (10,), generator=drawn)
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return to


def test_what_rounding_left_behind_is_said_and_nobody_is_accused(tmp_path: Path) -> None:
    golden = trained(tmp_path / "golden", keep="last:2")
    target = trained(tmp_path / "target", keep="last:2", nudge=3e-7)
    document = opscope.compare(target, golden).document
    assert not document.findings
    assert not document.complete
    assert any(
        "steps before it, which were not kept" in one for one in document.summary["warnings"]
    )


def test_two_that_are_equal_are_complete(tmp_path: Path) -> None:
    runs = [trained(tmp_path / name, keep="last:2") for name in ("target", "golden")]
    document = opscope.compare(*runs).document
    assert document.complete
    assert not document.findings


def test_other_arguments_are_told_where_all_was_kept_and_said_where_it_was_not(
    tmp_path: Path,
) -> None:
    words = "argument 1 (negative_slope) is 0.2, golden has 0"
    for keep in ("all", "last:2"):
        folder = tmp_path / keep
        golden = trained(folder / "golden", keep=keep)
        document = opscope.compare(
            trained(folder / "target", keep=keep, slope=0.2), golden
        ).document
        if keep == "all":
            assert document.findings[0].op == "aten::leaky_relu.default"
            assert words in document.findings[0].reasons[0]
        else:
            assert not document.findings
            assert any(words in one for one in document.summary["warnings"])
