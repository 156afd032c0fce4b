# SPDX-License-Identifier: Apache-2.0
"""Operators that torch itself computes otherwise below a dispatch mode give a watched program what
they give an unwatched one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import opscope
from opscope.record.torch.operators import unhindered


def inverses() -> list[torch.Tensor]:
    """Pseudo-inverses of a complex matrix, a least squares gradient through one, and one of a real
    matrix.
    """
    matrix = torch.randn(
        4, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0), requires_grad=True
    )
    side = torch.randn(4, 2, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))
    torch.linalg.lstsq(matrix, side).solution.abs().sum().backward()
    assert matrix.grad is not None
    fixed = matrix.detach()
    return [
        torch.linalg.pinv(fixed),
        torch.linalg.pinv(fixed.conj()),
        matrix.grad,
        torch.linalg.pinv(fixed.real),
    ]


def alike(plain: list[torch.Tensor], watched: list[torch.Tensor]) -> None:
    """A library's small products depend in their last digits on where memory lies: only the values
    are asked for.
    """
    for one, other in zip(plain, watched, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{}, {"values": "full"}, {"journal": "aten::linalg_pinv*"}],
    ids=["plain", "full", "journal"],
)
def test_complex_pseudo_inverses_keep_their_values(options: dict[str, Any], tmp_path: Path) -> None:
    plain = inverses()
    with opscope.record(tmp_path / "run", **options):
        watched = inverses()
    alike(plain, watched)


def test_checked_they_keep_their_values_and_nobody_is_accused(tmp_path: Path) -> None:
    plain = inverses()
    with opscope.record(tmp_path / "run", check=True, budget="all"):
        watched = inverses()
    alike(plain, watched)
    assert [
        (finding.call, finding.reasons)
        for finding in opscope.scan(opscope.open_run(tmp_path / "run")).findings
    ] == []


def bilinears() -> list[torch.Tensor]:
    """Results and gradients of a bilinear layer, under autocast and without."""
    torch.manual_seed(0)
    found = []
    for enabled in (True, False):
        x, y, weight = (
            torch.randn(shape, requires_grad=True) for shape in ((8, 16), (8, 12), (5, 16, 12))
        )
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            result = torch.nn.functional.bilinear(x, y, weight)
        result.sum().backward()
        found += [result.detach(), *(leaf.grad for leaf in (x, y, weight) if leaf.grad is not None)]
    return found


@pytest.mark.zoo
def test_bilinear_under_autocast_keeps_its_values_and_nobody_is_accused(tmp_path: Path) -> None:
    plain = bilinears()
    with opscope.record(tmp_path / "run", check=True, budget="all", values="full"):
        watched = bilinears()
    for one, other in zip(plain, watched, strict=True):
        assert torch.equal(one, other)
    run = opscope.open_run(tmp_path / "run")
    assert opscope.scan(run).findings == ()
    assert opscope.replay(run).findings == ()


def test_an_ordinary_operator_is_called_itself() -> None:
    assert unhindered(torch.ops.aten.mm.default) is torch.ops.aten.mm.default
    assert (
        unhindered(torch.ops.aten.linalg_pinv.atol_rtol_tensor)
        is not torch.ops.aten.linalg_pinv.atol_rtol_tensor
    )


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_exported_program_can_be_decomposed(tmp_path: Path) -> None:
    """torch traces it with tensors whose operators a mode of torch's own has to see: it lies below
    the recorder's.
    """
    data = torch.randn(2, 8)
    exported = torch.export.export(
        torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.GELU()), (data,)
    )
    alone = exported.run_decompositions().module()(data)
    with opscope.record(tmp_path / "run"):
        watched = exported.run_decompositions().module()(data)
    assert torch.equal(watched, alone)
    assert opscope.scan(opscope.open_run(tmp_path / "run")).verdict == "clean"


WITHOUT_MEMORY = """
import torch

torch.set_num_threads(1)
zeros = torch._efficientzerotensor((3, 2))
print([float(made.sum()) for made in (zeros * 2, zeros.mul(3.0), zeros + 1, zeros.add(1, alpha=2))])
print(
    [
        float(made.sum())
        for made in (
            torch.ops.aten.mul.Scalar(zeros, 2.0),
            torch.ops.aten.add.Scalar(zeros, 1.0),
        )
    ]
)
"""


@pytest.mark.parametrize("more", [[], ["--check"], ["--values", "full"]], ids=" ".join)
def test_zeros_without_memory_end_no_program(more: list[str], tmp_path: Path) -> None:
    """As derivatives of derivatives are: what a mode hands on to their kernels reads no memory."""
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_MEMORY, encoding="utf-8")
    command = [sys.executable, str(program)]
    alone = subprocess.run(command, capture_output=True, text=True, check=True)
    recorded = [sys.executable, "-m", "opscope", "run", "-o", str(tmp_path / "run"), *more, "--"]
    watched = subprocess.run([*recorded, *command], capture_output=True, text=True, check=False)
    assert watched.returncode == 0, watched.stderr
    assert alone.stdout in watched.stdout
