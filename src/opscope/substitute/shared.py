# SPDX-License-Identifier: Apache-2.0
"""The verdict of a result that the trusted kernel gives too, bit for bit: nobody replaced the
kernel, but it may be wrong for all.

Wrong is what lies beyond the operator's own bound of error, explained by no rounding of its inputs,
where a second witness says so: the operator itself gives the true element when it is called in
another form. Where every form gives the same, one witness stands alone,
the true result: it accuses what has no digit right, and the finding is suspected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import torch

from opscope.arrays import Array
from opscope.judge import families
from opscope.judge.replayed import (
    BEYOND,
    EASE,
    ILL,
    ROUNDOFF,
    Replayed,
    Sides,
    Terms,
    allows_everywhere,
    judge_output,
)
from opscope.judge.tolerance import LAMBDA, PRECISIONS
from opscope.operators.catalogue import family, kin, traits_of
from opscope.substitute.arguments import Conditions, dtype_name
from opscope.substitute.definition import Definition, defined
from opscope.substitute.integers import judge_integers
from opscope.substitute.layout import GRADIENT, WRITTEN
from opscope.substitute.perform import Bound, Performed
from opscope.substitute.terms import terms_of
from opscope.substitute.truth import (
    Attempt,
    as_array,
    in_float64,
    magnitude,
    roundoff,
    slack,
)
from opscope.substitute.wider import Float64
from opscope.substitute.witness import CRUDE, near_by, testimony
from opscope.substitute.witness.apart import apart, is_product_of_transposes

# Unit roundoff of float32 products under torch.set_float32_matmul_precision: bfloat16 or TF32
# inside.
IN_FORCE = {"medium": 2.0**-8, "high": 2.0**-11}
HEADROOM = 2  # what rounds to infinity on the way is this near the largest number
HALF = frozenset({"float16", "bfloat16"})
# part of the magnitudes of its terms that a sum in a half type loses only where it stops growing
STAGNANT = 0.25
# roundings of an update: its own operations, and state that was rounded before it was used
UPDATE_ROUNDINGS = 16


@dataclass(frozen=True)
class Truth:
    """A true result: the form of the call that it is of, how it was made, and what came of it."""

    bound: Bound
    run: Callable[[Bound], Performed]
    attempt: Attempt


def judge_shared(
    bound: Bound, slot: str, tensor: torch.Tensor, *, true: Attempt, accumulation: float | None
) -> Replayed:
    """The verdict of one output."""
    verdict = near_truth(slot, tensor, true)
    if bound.call.random is not None or bound.call.op.startswith(GRADIENT) or is_free(bound, slot):
        return verdict
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return judge_integers(bound, slot, tensor)
    for truth in truths(bound, true):
        expected = truth.attempt.output(slot)
        far = None if expected is None else beyond_bound(truth, slot, tensor, accumulation)
        if expected is None or far is None or far.worst is None:
            continue
        near = near_by(expected[far.worst].item(), far.tolerance)
        told = testimony(bound, slot, far.worst, tuple(tensor.shape), near=near)
        if told is not None:
            return msgspec.structs.replace(
                far,
                reason=f"{far.reason}; {told.words} the operator gives {told.value!r}",
                witnesses=2,
            )
        # Distances by products are documented to lose digits where they are small.
        if kin(bound.call.op) != "cdist" and is_gross(truth, slot, tensor):
            return msgspec.structs.replace(
                far, reason=f"{far.reason}; {WORDS[truth.attempt.name]}", witnesses=1
            )
    return verdict


def is_free(bound: Bound, slot: str) -> bool:
    """Whether an output is the operator's own affair, of which another form may make another one.

    That is what only its gradient reads (factors of a matrix or of its transpose), and gradients of
    a largest difference, whose place is found by its being equal to a distance that was rounded.
    """
    if slot in traits_of(bound.call.op).scratch.split(","):
        return True
    return traits_of(bound.call.op).chooses and {"float": "inf"} in bound.call.args["args"]


WORDS = {
    Float64.name: "in float64 the operator gives it",
    "decomposition": "PyTorch's decomposition gives it in float64",
    Definition.name: "its definition in other words gives it in float64",
}


def truths(bound: Bound, true: Attempt) -> Iterator[Truth]:
    """The true result by the operator in float64; from contiguous arguments, where those of the
    call are not (but for transposed matrices, of which products in float64 cost most of all); by
    another definition.
    """
    yield Truth(bound, in_float64, true)
    set_apart = None if is_product_of_transposes(bound) else apart(bound)
    if set_apart is not None and true.name == Float64.name:
        yield Truth(set_apart, in_float64, Attempt(Float64.name, lambda: in_float64(set_apart)))
    definition = Definition()
    if defined(bound) is not None:
        yield Truth(bound, definition.run, Attempt(Definition.name, lambda: definition.run(bound)))


def near_truth(slot: str, tensor: torch.Tensor, true: Attempt) -> Replayed:
    """Whether a result is far from the true one, which alone accuses nobody: the call may be
    ill-conditioned.
    """
    expected = true.output(slot)
    if (
        expected is None
        or expected.shape != tensor.shape
        or not tensor.dtype.is_floating_point
        or tensor.numel() == 0
    ):
        return Replayed(verdict="agree", slot=slot, size=tensor.numel())
    error, size = true.distance(slot, tensor)
    # all is finite and near the true result: nothing more needs to be asked
    if math.isfinite(size) and error <= ILL * ROUNDOFF.get(dtype_name(tensor), 0.0) * size:
        return Replayed(verdict="agree", slot=slot, size=tensor.numel())
    values = as_array(tensor)
    return judge_output(
        slot, Sides(dtype=dtype_name(tensor), target=values, own=values, true=as_array(expected))
    )


def beyond_bound(
    truth: Truth, slot: str, tensor: torch.Tensor, accumulation: float | None
) -> Replayed | None:
    """What is wrong with a result by the operator's bound of error alone, whatever a trusted kernel
    errs; None where nothing is.
    """
    bound, expected = truth.bound, truth.attempt.output(slot)
    if expected is None or expected.shape != tensor.shape or not tensor.numel():
        return None
    if is_update(bound.call.op, slot) and tensor.dtype.is_floating_point:
        return None if within_rounding(tensor, expected) else misplaced(truth, slot, tensor)
    terms = terms_of(bound, slot, tensor)
    allowed = accumulation or IN_FORCE.get(bound.call.flags.matmul_precision)
    terms = (
        msgspec.structs.replace(terms, accumulation=allowed) if terms.kind == "linear" else terms
    )
    error, largest = truth.attempt.distance(slot, tensor)
    if allows_everywhere(error, largest, dtype=dtype_name(tensor), terms=terms):
        return None
    if within_rounding(tensor, expected):
        return None
    sides = Sides(
        dtype=dtype_name(tensor), target=as_array(tensor), true=as_array(expected), alone=2
    )
    if judge_output(slot, sides, terms).verdict != "wrong":
        return None
    unit = ROUNDOFF[sides.dtype] if sides.dtype in HALF else roundoff(sides.dtype)
    shaken = slack(bound, slot, sides.true, unit=unit, run=truth.run)
    grown = max(
        1.0, LAMBDA * math.sqrt(terms.count) / EASE
    )  # sums that cancel keep what their partial sums were rounded by
    unexplained = msgspec.structs.replace(
        sides,
        magnitude=magnitude(bound, slot, terms),
        slack=None if shaken is None else grown * shaken,
    )
    verdict = judge_output(slot, unexplained, terms)
    return verdict if verdict.verdict == "wrong" else None


def is_update(op: str, slot: str) -> bool:
    """Whether a slot is a tensor that an optimizer's operator moves."""
    return slot.startswith(WRITTEN) and families.tolerance_kind(family(op)) == "optimizer"


def misplaced(truth: Truth, slot: str, tensor: torch.Tensor) -> Replayed | None:
    """What is wrong with what an optimizer wrote, beside the update that it made; None where
    nothing is.
    """
    before = truth.bound.tensors(Conditions(device="cpu", wide=torch.float64))[
        slot.removeprefix(WRITTEN)
    ]
    expected = truth.attempt.output(slot)
    moved = judge_update(
        slot, dtype_name(tensor), as_array(before), as_array(tensor), as_array(expected)
    )
    return moved if moved.verdict == "wrong" and not shaken_more(truth, slot, moved) else None


def judge_update(slot: str, dtype: str, before: Array, target: Array, true: Array) -> Replayed:
    """Whether an optimizer that does its whole step in one operator moved a tensor as far as it
    should: before, as it was left, and as float64 leaves it.

    Such operators work in float32 at least and round once, so a result lies within a rounding of
    the true one and a few roundings of what was added to it. The bound of judge.tolerance is
    relative to the parameter, which an update is a small part of.
    """
    unit = ROUNDOFF[dtype]
    with np.errstate(all="ignore"):
        error = np.nan_to_num(np.abs(target - true), posinf=0.0)
        allowed = (
            unit * (1.5 * np.abs(true) + UPDATE_ROUNDINGS * np.abs(true - before))
            + PRECISIONS[dtype].least
        )
        apart = error > allowed
    if not apart.any():
        return Replayed(verdict="agree", slot=slot, size=error.size)
    worst = np.unravel_index(int(np.argmax(error / allowed)), error.shape)
    return Replayed(
        verdict="wrong",
        slot=slot,
        reason=BEYOND,
        error=float(error[worst]),
        tolerance=float(allowed[worst]),
        size=error.size,
        elements=int(apart.sum()),
        worst=tuple(map(int, worst)),
        got=repr(target[worst].item()),
        expected=repr(true[worst].item()),
    )


def shaken_more(truth: Truth, slot: str, moved: Replayed) -> bool:
    """Whether a rounding of what an optimizer read moves its state further than it is off: what is
    added to it may cancel. A parameter is itself what it reads, and as far from its neighbours as
    updates reach.
    """
    if slot.removeprefix(WRITTEN).startswith("0") or moved.worst is None or moved.error is None:
        return False
    expected = truth.attempt.output(slot)
    dtype = truth.bound.call.tensors[slot.removeprefix(WRITTEN)].dtype
    shaken = slack(truth.bound, slot, as_array(expected), unit=ROUNDOFF[dtype], run=truth.run)
    return shaken is not None and moved.error <= EASE * float(shaken[moved.worst])


def is_gross(truth: Truth, slot: str, tensor: torch.Tensor) -> bool:
    """Whether a result has no digit right beside its largest element, or is finite where the true
    one is not, or not where that is.

    A sum in a half type loses digits in every library that adds in that type: gross is what stopped
    growing.
    """
    target, true = components(tensor), components(truth.attempt.output(slot))
    largest = torch.finfo(tensor.dtype).max
    with np.errstate(all="ignore"):
        sound, held = np.isfinite(true), np.isfinite(target)
        if bool(
            (sound & ~held & (np.abs(true) < largest / HEADROOM)).any()
            | (held & ~sound & (np.abs(target) < largest / 4)).any()
        ):
            return True
        scale = float(np.abs(true[sound]).max(initial=0.0))
        error = np.where(sound & held, np.abs(target - true), 0.0)
    if dtype_name(tensor) in HALF:
        return stagnant(truth, slot, tensor)
    return scale > 0 and bool((error > CRUDE * scale).any())


def components(tensor: torch.Tensor | None) -> Any:
    """A tensor's elements in float64, real and imaginary parts as numbers of their own."""
    values = as_array(tensor)
    return np.stack((values.real, values.imag)) if np.iscomplexobj(values) else values


def stagnant(truth: Truth, slot: str, tensor: torch.Tensor) -> bool:
    """Whether sums in a half type stopped growing: of many terms, of the true sign, and a good part
    of their magnitudes too small.

    Whatever else errs in a half type may have rounded on the way what it then took the floor of, as
    places in a picture are.
    """
    target, true = as_array(tensor), as_array(truth.attempt.output(slot))
    read = max((math.prod(laid.shape) for laid in truth.bound.call.tensors.values()), default=0)
    if read < tensor.numel() / (4 * ROUNDOFF[dtype_name(tensor)]):
        return False
    terms = magnitude(truth.bound, slot, Terms(kind="linear"))
    size = np.maximum(np.abs(true), 0.0 if terms is None or terms.shape != true.shape else terms)
    with np.errstate(all="ignore"):
        return bool(
            (
                (target * true >= 0)
                & (np.abs(true) - np.abs(target) > STAGNANT * size)
                & (size > 0)
            ).any()
        )


def within_rounding(tensor: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether every element is the true one but for a rounding or two, or no number that errs: then
    nothing more needs to be asked.
    """
    unit = ROUNDOFF.get(dtype_name(tensor))
    if unit is None:
        return True
    near = (expected - tensor.to(expected.dtype)).abs() <= 2 * unit * expected.abs()
    return bool((near & expected.isfinite() | (expected.to(tensor.dtype) == tensor)).all())
