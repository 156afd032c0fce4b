# SPDX-License-Identifier: Apache-2.0
"""The standard checker's columns by hand: small values, thresholds and ULPs by element type."""

from __future__ import annotations

import pytest
import torch

from opscope.substitute.columns import columns_of


def test_small_values_and_relative_errors_are_of_different_elements() -> None:
    golden = torch.tensor([2.0**-21, 2.0**-21, 1.0, 4.0], dtype=torch.float64)
    target = (golden + torch.tensor([2.0**-31, 2.0**-25, 0.0, 2.0**-17])).float()
    found = columns_of(target, golden)
    assert found["小值域错误占比"] == found["绝对误差错误率"] == 0.5
    assert found["相对误差错误率"] == 0.5
    assert found["相对误差最大值"] == pytest.approx(2.0**-19, rel=1e-6)
    assert found["相对误差平均值"] == pytest.approx(2.0**-20, rel=1e-6)
    assert (found["Bench Dtype"], found["DEVICE Dtype"]) == ("torch.float64", "torch.float32")


def test_errors_in_ulps_of_the_targets_type() -> None:
    golden = torch.tensor([1.0, 8.0, 0.0, 1.0])
    off = torch.tensor([2.0**-10, 8 * 2.0**-9, 0.5, 0.0])
    half = columns_of((golden + off).half(), golden)
    assert half["ULP误差最大值"] == 512, "beside zero an error counts in ULPs of one"
    assert half["ULP误差平均值"] == (1 + 2 + 512) / 4
    assert half["ULP误差大于阈值占比"] == 0.5
    brain = columns_of(torch.tensor([1 + 2.0**-7], dtype=torch.bfloat16), torch.tensor([1.0]))
    assert brain["ULP误差最大值"] == 1
    single = columns_of(torch.tensor([1 + 40 * 2.0**-23]), torch.tensor([1.0], dtype=torch.float64))
    assert (single["ULP误差最大值"], single["ULP误差大于阈值占比"]) == (40, 1.0)


def test_types_without_thresholds_have_no_such_columns() -> None:
    found = columns_of(torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    assert found["余弦相似度"] == pytest.approx(1)
    assert "ULP误差最大值" not in found
    assert columns_of(torch.tensor([1, 2]), torch.tensor([1, 3]))["二进制一致错误率"] == 0.5
    assert "最大绝对误差" not in columns_of(torch.zeros(0), torch.zeros(0))
