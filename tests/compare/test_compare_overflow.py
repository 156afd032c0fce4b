# SPDX-License-Identifier: Apache-2.0
"""What leaves its type on one side alone is where two runs part, however steep the operator is."""

from __future__ import annotations

from pathlib import Path

import torch

import opscope


def squared(to: Path, *, half: bool) -> Path:
    """A recorded power of the same numbers, in either type; nothing learns of what comes of it."""
    with opscope.record(to, values="none"):
        held = torch.Generator().manual_seed(3)
        weight = torch.randn(32, 32, generator=held)
        with torch.autocast("cpu", torch.float16, enabled=half):
            made = torch.relu(weight @ weight * 40) ** 2
            made.float().mean().item()
    return to


def masked(to: Path, *, half: bool) -> Path:
    """A recorded logarithm of what is zero in half precision, where a mask leaves it out."""
    with opscope.record(to, values="none"):
        shares = [place / 128 if place % 4 else 1e-9 for place in range(128)]
        tokens = torch.tensor(shares, dtype=torch.float16 if half else torch.float32) * 1
        told = torch.where(tokens > 1e-6, tokens.log(), 0)
        told.float().mean().item()
    return to


def test_an_infinity_that_a_mask_removes_parts_nothing(tmp_path: Path) -> None:
    document = opscope.compare(
        masked(tmp_path / "half", half=True), masked(tmp_path / "single", half=False)
    ).document
    assert document.verdict == "clean"


def test_an_infinity_on_one_side_alone_is_no_agreement(tmp_path: Path) -> None:
    document = opscope.compare(
        squared(tmp_path / "half", half=True), squared(tmp_path / "single", half=False)
    ).document
    assert document.verdict == "found"
    assert document.findings[0].op == "aten::pow.Tensor_Scalar"
