# SPDX-License-Identifier: Apache-2.0
"""Of factorisations other right factors accuse nobody, wrong ones are told by what they multiply
to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opscope.judge.replayed import Replayed
from opscope.record.torch.capture import capture
from opscope.substitute.examine import examine
from opscope.substitute.perform import Bound

Tensor = torch.Tensor
aten: Any = torch.ops.aten


def verdict_of(func: Any, args: tuple[Any, ...], *results: Tensor) -> Replayed:
    captured = capture(
        func.name() + ".default", args, {}, writes=frozenset(), random=False, limit=1 << 24
    )
    return examine(
        Bound(captured.call, captured.pieces),
        {str(place): each for place, each in enumerate(results)},
    ).verdict


def matrix(kind: str, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    found = torch.randn(2, rows, columns, dtype=dtype, generator=generator)
    if kind == "low rank":
        found = found[..., :2] @ torch.randn(2, 2, columns, dtype=dtype, generator=generator)
    if kind == "scaled":
        found = found * torch.logspace(-4, 3, columns, dtype=dtype)
    if kind == "equal":
        found = torch.linalg.qr(found)[0]
    return found


def turned(u: Tensor) -> Tensor:
    """Signs, or phases, that are free."""
    turns = torch.where(torch.arange(u.shape[-1]) % 2 == 0, -1.0, 1.0).to(u.dtype)
    return (
        turns
        if not u.is_complex()
        else turns * torch.exp(1j * torch.arange(u.shape[-1])).to(u.dtype)
    )


KINDS = ("plain", "low rank", "scaled", "equal")
DTYPES = (torch.float32, torch.complex64, torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_singular_vectors_of_other_signs_are_right(kind: str, dtype: torch.dtype) -> None:
    x = matrix(kind, 9, 5, dtype)
    u, s, vh = (
        each.to(dtype) if each.is_complex() == dtype.is_complex else each
        for each in torch.linalg.svd(x.to(torch.complex128))
    )
    if not dtype.is_complex:
        u, s, vh = torch.linalg.svd(x.double())
    turns = turned(vh)
    u = torch.cat([u[..., :5] * turns, u[..., 5:]], -1)
    results = u.to(dtype), s.to(x.real.dtype), (vh * turns.conj()[:, None]).to(dtype)
    found = verdict_of(aten._linalg_svd.default, (x, True), *results)
    assert found.verdict == "agree", found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eigenvectors_of_other_signs_are_right(kind: str, dtype: torch.dtype) -> None:
    x = matrix(kind, 6, 6, dtype)
    x = x @ x.mH
    w, v = torch.linalg.eigh(x.to(torch.complex128 if dtype.is_complex else torch.float64))
    found = verdict_of(
        aten._linalg_eigh.default, (x,), w.to(x.real.dtype), (v * turned(v)).to(dtype)
    )
    assert found.verdict == "agree", found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eigenpairs_in_another_order_are_right(dtype: torch.dtype) -> None:
    x = matrix("plain", 6, 6, dtype)
    w, v = torch.linalg.eig(x.to(torch.complex128))
    complex_type = torch.complex128 if dtype is torch.float64 else torch.complex64
    found = verdict_of(
        aten.linalg_eig.default, (x,), w.flip(-1).to(complex_type), v.flip(-1).to(complex_type)
    )
    assert found.verdict == "agree", found


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_triangles_of_other_signs_are_right(mode: str, dtype: torch.dtype) -> None:
    x = matrix("scaled", 7, 5, dtype)
    q, r = torch.linalg.qr(x.to(torch.complex128 if dtype.is_complex else torch.float64), mode)
    turns = turned(r.mT)
    q = q * turns.conj() if q.numel() else q
    found = verdict_of(
        aten.linalg_qr.default, (x, mode), q.to(dtype), (turns[:, None] * r).to(dtype)
    )
    assert found.verdict == "agree", found


WRONG: dict[str, tuple[Any, Callable[[list[Tensor]], Any], str]] = {
    "singular value": (aten._linalg_svd.default, lambda r: r[1][..., 2].mul_(1.001), "1"),
    "right vector": (aten._linalg_svd.default, lambda r: r[2][..., 1, :].mul_(1.002), "2"),
    "left vectors swapped": (aten._linalg_svd.default, lambda r: r[0].copy_(r[0].roll(1, -1)), "0"),
    "eigenvalue": (aten._linalg_eigh.default, lambda r: r[0][..., -1].mul_(1.001), "0"),
    "eigenvector twice": (
        aten._linalg_eigh.default,
        lambda r: r[1][..., 0].copy_(r[1][..., 1]),
        "1",
    ),
    "long eigenvector": (aten.linalg_eig.default, lambda r: r[1][..., 0].mul_(1.01), "1"),
    "another eigenvalue": (aten.linalg_eig.default, lambda r: r[0][..., 3].mul_(1.01), "0"),
    "element of R": (aten.linalg_qr.default, lambda r: r[1][..., 0, -1].add_(0.01), "1"),
    "below the diagonal": (aten.linalg_qr.default, lambda r: r[1][..., 3, 0].add_(0.01), "1"),
    "column of Q": (aten.linalg_qr.default, lambda r: r[0][..., 2].mul_(0.99), "0"),
    "reflection": (aten.geqrf.default, lambda r: r[1][..., 1].mul_(1.01), "1"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_wrong_factors_are_told(name: str, dtype: torch.dtype) -> None:
    func, spoil, slot = WRONG[name]
    x = matrix("plain", 6, 6, dtype)
    x = x + x.mH if "eigh" in func.name() else x
    results = [each.clone() for each in func(x)]
    spoil(results)
    found = verdict_of(func, (x,), *results)
    assert (found.verdict, found.slot) == ("wrong", slot), found
    assert found.reason
