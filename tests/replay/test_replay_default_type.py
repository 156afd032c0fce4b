# SPDX-License-Identifier: Apache-2.0
"""Replayed calls that take the default element type of their program are made again in that."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import opscope


@pytest.mark.parametrize(
    "dtype", [torch.float64, pytest.param(torch.bfloat16, marks=pytest.mark.zoo)], ids=str
)
def test_quotients_of_integers_and_numbers_from_nothing_are_not_accused(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with opscope.record(tmp_path / "run", values="full"):
            numbers = torch.arange(6)
            _ = (
                torch.randn(3) + torch.ones(3),
                numbers / 4,
                numbers.sqrt(),
                torch.linspace(0, 1, 5),
                numbers.float() * 0.5,
            )
    finally:
        torch.set_default_dtype(before)
    document = opscope.replay(opscope.open_run(tmp_path / "run"))
    assert document.findings == ()
    assert torch.get_default_dtype() is before
