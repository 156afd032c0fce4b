# SPDX-License-Identifier: Apache-2.0
"""The mean of what is centred is nothing but rounding, which no two devices share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import opscope

Net = Callable[[torch.Tensor], object]


def twice(x: torch.Tensor) -> object:
    return torch.nn.functional.layer_norm(torch.nn.functional.layer_norm(x, (96,)), (96,))


def batches(x: torch.Tensor) -> object:
    return torch.nn.functional.batch_norm(x - x.mean(0), None, None, training=True)


def groups(x: torch.Tensor) -> object:
    return torch.nn.functional.group_norm(torch.nn.functional.group_norm(x, 1), 1)


def moments(x: torch.Tensor) -> object:
    return torch.var_mean(x - x.mean(1, keepdim=True), 1)


def mean(x: torch.Tensor) -> object:
    return (x - x.mean(1, keepdim=True)).mean(1)


@pytest.mark.parametrize("net", [twice, batches, groups, moments, mean])
def test_rounding_alone_is_no_difference(net: Net, tmp_path: Path) -> None:
    torch.manual_seed(0)
    left, right = torch.randn(64, 300), torch.randn(300, 96)
    runs = [tmp_path / "float", tmp_path / "double"]
    for path, dtype in zip(runs, (torch.float32, torch.float64), strict=True):
        with opscope.record(path), torch.no_grad():
            net(torch.matmul(left.to(dtype), right.to(dtype)).float().mul(1.0))
    assert opscope.compare(*runs).document.findings == ()


def test_another_epsilon_is_told_all_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 96) / 100
    runs = [tmp_path / "target", tmp_path / "golden"]
    for path, eps in zip(runs, (1e-3, 1e-5), strict=True):
        with opscope.record(path), torch.no_grad():
            torch.nn.functional.layer_norm(twice(x), (96,))  # type: ignore[arg-type]
            torch.nn.functional.layer_norm(x, (96,), eps=eps)
    first = opscope.compare(*runs).document.findings[0]
    assert "argument 4 (eps) is 0.001, golden has 1e-05" in first.reasons
