# SPDX-License-Identifier: Apache-2.0
"""What factorisations determine whose results are not unique: singular vectors are free in sign,
those of equal values in more.

Two right kernels may give other factors; what these multiply to, the lengths of and angles between
vectors, and singular values and eigenvalues in ascending or descending order are the same (Golub
and Van Loan, Matrix Computations, 4th ed., 2.4, 5.2, 7.1, 8.1). Each is computed in float64 from a
kernel's results and judged in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import torch

from opscope.arrays import Array
from opscope.judge.replayed import Replayed, Sides, Terms, gravest, judge_output
from opscope.substitute.arguments import Conditions, dtype_name, values_of
from opscope.substitute.perform import Bound, Performed

Tensor = torch.Tensor
Outputs = Mapping[str, Tensor]


class Quantity(msgspec.Struct, frozen=True):
    """Something that results determine: words for it, its value, the slot it is told of; direct
    where it is that output itself.
    """

    words: str
    value: Tensor
    slot: str
    direct: bool = False


def svd(_: Tensor, outputs: Outputs) -> list[Quantity]:
    u, s, vh = (outputs[slot] for slot in ("0", "1", "2"))
    determined = [Quantity("the singular values", s, "1", direct=True)]
    if u.numel() == 0 or vh.numel() == 0:
        return determined
    size = s.shape[-1]
    product = u[..., :size] * s[..., None, :].to(u.dtype) @ vh[..., :size, :]
    lengths = [
        Quantity("the products of U's columns", u.mH @ u, "0"),
        Quantity("the products of Vh's rows", vh @ vh.mH, "2"),
    ]
    return [*determined, *lengths, Quantity("U S Vh, which is the matrix,", product, "0")]


def eigh(_: Tensor, outputs: Outputs) -> list[Quantity]:
    w, v = outputs["0"], outputs["1"]
    determined = [Quantity("the eigenvalues", w, "0", direct=True)]
    if v.numel() == 0:
        return determined
    whole = v * w[..., None, :].to(v.dtype) @ v.mH
    return [
        *determined,
        Quantity("the products of eigenvectors", v.mH @ v, "1"),
        Quantity("V w Vh, which is the matrix,", whole, "1"),
    ]


def eig(matrix: Tensor, outputs: Outputs) -> list[Quantity]:
    """In any order, each vector of length 1: sums of powers of the eigenvalues; A + (A V - V w),
    which is A.
    """
    w, v = outputs["0"], outputs["1"]
    sums = torch.stack([(w**power).sum(-1) for power in (1, 2)], -1)
    determined = [Quantity("the sums of the eigenvalues and their squares", sums, "0")]
    if v.numel() == 0:
        return determined
    left = matrix.to(v.dtype)
    lengths = Quantity("the lengths of the eigenvectors", v.abs().square().sum(-2), "1")
    return [
        *determined,
        lengths,
        Quantity("A V - V w, which is zero,", left + (left @ v - v * w[..., None, :]), "1"),
    ]


def qr(_: Tensor, outputs: Outputs) -> list[Quantity]:
    q, r = outputs["0"], outputs["1"]
    determined = [
        Quantity("what is below R's diagonal", r.tril(-1), "1"),
        Quantity("Rh R", r.mH @ r, "1"),
    ]
    if q.numel() == 0:
        return determined
    return [
        *determined,
        Quantity("the products of Q's columns", q.mH @ q, "0"),
        Quantity("Q R, which is the matrix,", q @ r, "0"),
    ]


def geqrf(_: Tensor, outputs: Outputs) -> list[Quantity]:
    a, tau = outputs["0"], outputs["1"]
    size = tau.shape[-1]
    q, r = torch.linalg.householder_product(a[..., :size], tau), a[..., :size, :].triu()
    return [
        Quantity("Rh R", r.mH @ r, "0"),
        Quantity("the product of reflections and R, which is the matrix,", q @ r, "1"),
    ]


# Operator without namespace and overload -> what its results determine.
QUANTITIES: dict[str, Callable[[Tensor, Outputs], list[Quantity]]] = {
    "_linalg_svd": svd,
    "linalg_svd": svd,
    "_linalg_eigh": eigh,
    "linalg_eigh": eigh,
    "linalg_eig": eig,
    "linalg_qr": qr,
    "geqrf": geqrf,
}


def judge_determined(
    bound: Bound, target: Outputs, own: Performed | None, true: Performed | None
) -> list[Replayed]:
    """A verdict of each output of a factorisation, by what its results determine beside the trusted
    kernel's and the true ones.
    """
    dtype, sizes = (
        dtype_name(next(iter(target.values()))),
        [shape for out in target.values() for shape in out.shape],
    )
    trusted = own if own is not None else true
    if trusted is None:
        return [
            Replayed(verdict="unknown", slot=slot, reason="no substitute could make this call")
            for slot in target
        ]
    for slot, tensor in target.items():
        if slot not in trusted.outputs or trusted.outputs[slot].shape != tensor.shape:
            return [
                Replayed(
                    verdict="wrong",
                    slot=slot,
                    reason=f"shape {list(tensor.shape)} where the substitute gives another",
                )
            ]
    where = Conditions(device="cpu", wide=torch.float64)
    matrix = values_of(bound.call.args, bound.tensors(where), where)[0][0]
    rule = QUANTITIES[bound.name]
    mine, there = (
        None if side is None else rule(matrix, widened(side.outputs)) for side in (own, true)
    )
    verdicts = []
    for number, quantity in enumerate(rule(matrix, widened(target))):
        sides = Sides(
            dtype=dtype,
            target=as_numbers(quantity),
            own=as_numbers(mine[number]) if mine else None,
            true=as_numbers(there[number]) if there else None,
            wider=dtype not in ("float64", "complex128"),
        )
        verdicts.append(
            told(quantity, judge_output(quantity.slot, sides, Terms(count=max(sizes, default=1))))
        )
        if verdicts[-1].verdict == "wrong":  # what comes of it is wrong too
            break
    return [gravest(each for each in verdicts if each.slot == slot) for slot in target]


def widened(outputs: Outputs) -> dict[str, Tensor]:
    """The outputs in double precision, on the host."""
    return {
        slot: tensor.detach().cpu().to(torch.complex128 if tensor.is_complex() else torch.float64)
        for slot, tensor in outputs.items()
        if tensor.is_floating_point() or tensor.is_complex()
    }


def as_numbers(quantity: Quantity) -> Array:
    return quantity.value.resolve_conj().numpy()


def told(quantity: Quantity, verdict: Replayed) -> Replayed:
    """The verdict; the place within a quantity that is no output means nothing, so words say what
    is wrong.
    """
    if quantity.direct or verdict.verdict != "wrong":
        return verdict
    limit = (
        f" is off by up to {verdict.error:.3g}, {verdict.tolerance:.3g} is allowed"
        if verdict.error is not None
        else f": {verdict.reason}"
    )
    return msgspec.structs.replace(
        verdict, reason=f"{quantity.words}{limit}", worst=None, got="", expected="", elements=0
    )
