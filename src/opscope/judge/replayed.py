# SPDX-License-Identifier: Apache-2.0
"""The verdict of a call that was made again: what a kernel gave, beside what a trusted one gave and
the true result.

Three sides of each output are known at most: `target`, the kernel under suspicion; `own`, a trusted
kernel in the same element types; `true`, the result in double precision. What the target may err is
the operator's tolerance of judge.tolerance, for one side that errs, or a multiple of the trusted
kernel's own error where that is more (the dual standard): a call which loses digits by its nature
accuses nobody.

    |target - true| <= absolute + relative |true| + max(8 |own - true|, scaled max|true|, or share m
    where it is known) + 8 slack

m is the sum of the magnitudes of an element's terms; slack, asked only before something is accused,
what the true result changes by when each input changes by a rounding of the type that the kernel
computes in (Higham, 1.5: a result is as good as can be when it is near the true result of inputs
near the given ones). A true result of no wider type than the target's errs as that does, and the
trusted kernel's nearness to it says nothing. Of operators that work element by element the trusted
kernel's own error counts at each element, of others its largest; those that move, choose or round
once must err no more than it does. In types of half width or less the kernel accumulates in a wider
type; a root mean square error of more than twice the trusted kernel's tells that it did not. Where
healthy kernels round P partial sums of an element to its type, sqrt(1 + P / 2) times a rounding of
it is
theirs: the terms' own, and those of sums that grow as a random walk does.

Verdicts: agree; wrong; ill-conditioned (both kernels are far from the true result); flaky (the same
inputs, other bits); unknown (no side to compare with, or the trusted sides differ).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.judge.limits import largest_finite
from opscope.judge.tolerance import EACH, ONCE, PRECISIONS, one_side

VERDICTS = ("wrong", "flaky", "ill-conditioned", "unknown", "agree")  # the gravest first

ROUNDOFF = {name: precision.unit for name, precision in PRECISIONS.items()}
NARROW = frozenset(
    {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"}
)
ILL = 512  # roundings beyond which a trusted kernel's own error is called ill-conditioned
EASE = 8  # times a trusted kernel's own error
# times the tolerance where no trusted kernel of the same type tells how the operator amplifies its
# own rounding
ALONE = 8


class Terms(msgspec.Struct, frozen=True):
    """How the elements of an output come about: by which operator ("": nobody knows), of count
    terms each.

    kind is linear where the magnitudes of the terms can be had. accumulation is the unit roundoff
    in which terms are added, None for that of the element type (float32 at least). partial counts
    the sums on the way that healthy kernels may round to the element type.
    """

    op: str = ""
    count: int = 1
    partial: int = 0
    kind: str = "other"
    accumulation: float | None = None


ANY = Terms()
BEYOND = "beyond what rounding allows"
NARROWLY = "errors as of an accumulation in the element type"


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """One output in float64 (complex128, or its own integers): target, the trusted kernel's own
    result, the true result.

    dtype is the target's element type; wider whether the true result was computed in a wider one;
    magnitude the sum of the magnitudes of each element's terms, slack the change that the roundings
    of the inputs make, where these are known. alone says how many times the tolerance holds where
    there is no own.
    """

    dtype: str
    target: Array
    own: Array | None = None
    true: Array | None = None
    magnitude: Array | None = None
    slack: Array | None = None
    wider: bool = True
    alone: int = ALONE


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict of one output, or of a call: its gravest output.

    error is the largest error against the true result, tolerance what was allowed at that element,
    own_error the trusted kernel's largest error; worst its index, got and expected the values
    there; elements how many are beyond. witnesses says how many independent ones accuse a kernel
    that every process shares: 1, the true result alone, or 2; 0 where a trusted kernel differs.
    """

    verdict: str
    slot: str = ""
    reason: str = ""
    error: float | None = None
    tolerance: float | None = None
    own_error: float | None = None
    elements: int = 0
    size: int = 0
    worst: tuple[int, ...] | None = None
    got: str = ""
    expected: str = ""
    witnesses: int = 0


def gravest(verdicts: Iterable[Replayed]) -> Replayed:
    """The gravest verdict, the earliest of equals; agree when there is none."""
    listed = list(verdicts)
    return min(
        listed, key=lambda each: VERDICTS.index(each.verdict), default=Replayed(verdict="agree")
    )


def judge_output(slot: str, sides: Sides, terms: Terms = ANY) -> Replayed:
    """The verdict of one output."""
    trusted = sides.true if sides.true is not None else sides.own
    if trusted is None:
        return Replayed(
            verdict="unknown",
            slot=slot,
            reason="no substitute could make this call",
            size=sides.target.size,
        )
    if trusted.shape != sides.target.shape:
        reason = (
            f"shape {list(sides.target.shape)} where the substitute gives {list(trusted.shape)}"
        )
        return Replayed(verdict="wrong", slot=slot, reason=reason, size=sides.target.size)
    if sides.target.size == 0:
        return Replayed(verdict="agree", slot=slot)
    rule = one_side(terms.op, sides.dtype)
    if not rule.judged:
        return Replayed(verdict="unknown", slot=slot, reason=rule.reason, size=sides.target.size)
    if sides.dtype not in ROUNDOFF:
        return _judge_exact(slot, sides, trusted)
    with np.errstate(all="ignore"):
        odd = _judge_masks(slot, sides, trusted)
        return odd if odd is not None else _judge_finite(slot, sides, trusted, terms)


def _judge_exact(slot: str, sides: Sides, trusted: Array) -> Replayed:
    """Integers and truth values: equal or not."""
    exact = sides.own if sides.own is not None else trusted
    apart = sides.target != exact
    if not apart.any():
        return Replayed(verdict="agree", slot=slot, size=apart.size)
    return _beyond(slot, sides, exact, apart, reason="other integers than the substitute's")


def _beyond(slot: str, sides: Sides, trusted: Array, apart: Array, *, reason: str) -> Replayed:
    index = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return Replayed(
        verdict="wrong",
        slot=slot,
        reason=reason,
        elements=int(apart.sum()),
        size=apart.size,
        worst=tuple(map(int, index)),
        got=str(sides.target[index]),
        expected=str(trusted[index]),
    )


def classes(values: Array) -> Array:
    """0 for finite elements, 1 NaN, 2 +inf, 3 -inf; complex ones by NaN, then inf."""
    numbers = np.zeros(values.shape, np.int8)
    numbers[np.isinf(values)] = 2
    if not np.iscomplexobj(values):
        numbers[np.isneginf(values)] = 3
    numbers[np.isnan(values)] = 1
    return numbers


def _judge_masks(slot: str, sides: Sides, trusted: Array) -> Replayed | None:
    """Elements that are not finite on one side alone, or in another way; None when there are none
    that count.
    """
    limit = largest_finite(sides.dtype) or math.inf
    here, there = classes(sides.target), classes(trusted)
    if not here.any() and not there.any() and float(np.abs(trusted).max()) < limit / 2:
        return None
    near = np.abs(trusted) >= limit * (1 - 8 * ROUNDOFF[sides.dtype])
    if not np.iscomplexobj(trusted):
        there = np.where(near & (there == 0), np.where(trusted > 0, 2, 3), there)
    apart = here != there
    apart &= ~(
        (here == 0) & near & (np.abs(sides.target) >= limit / 4)
    )  # saturated, or just below the limit
    if sides.own is not None:
        apart &= here != classes(sides.own)  # so does the trusted kernel in this element type
    if not apart.any():
        return None
    kind = (
        "not finite where the true result is"
        if (here[apart] != 0).any()
        else "finite where the true result is not"
    )
    return _beyond(slot, sides, trusted, apart, reason=kind)


def _judge_finite(slot: str, sides: Sides, trusted: Array, terms: Terms) -> Replayed:
    finite = np.isfinite(sides.target) & np.isfinite(trusted)
    if sides.own is not None:
        finite &= np.isfinite(sides.own)
    error = np.where(finite, np.abs(sides.target - trusted), 0.0)
    own = None if sides.own is None else np.where(finite, np.abs(sides.own - trusted), 0.0)
    size = np.where(finite, np.abs(trusted), 0.0)
    tolerance = _tolerance(sides, size, own, terms)
    apart = error > tolerance
    worst = np.unravel_index(
        int(np.argmax(error / np.maximum(tolerance, np.finfo(np.float64).tiny))), error.shape
    )
    facts = Replayed(
        verdict="agree",
        slot=slot,
        error=float(error[worst]),
        tolerance=float(tolerance[worst]),
        size=error.size,
        own_error=None if own is None else float(own.max()),
        elements=int(apart.sum()),
        worst=tuple(map(int, worst)),
        got=_text(sides.target[worst]),
        expected=_text(trusted[worst]),
    )
    if apart.any():
        return msgspec.structs.replace(facts, verdict="wrong", reason=BEYOND)
    if _accumulated_narrowly(sides, error, own, size, terms.partial):
        return msgspec.structs.replace(facts, verdict="wrong", reason=NARROWLY)
    if own is not None and float(own.max()) > ILL * ROUNDOFF[sides.dtype] * max(
        float(size.max()), PRECISIONS[sides.dtype].least
    ):
        return msgspec.structs.replace(
            facts,
            verdict="ill-conditioned",
            reason="the trusted kernel is as far from the true result",
        )
    return facts


def _text(value: Any) -> str:
    return repr(value.item())


def _tolerance(sides: Sides, size: Array, own: Array | None, terms: Terms) -> Array:
    """What is allowed at each element; the formula at the head of this file."""
    rule = one_side(terms.op, sides.dtype, terms=terms.count, accumulation=terms.accumulation)
    floor = rule.absolute + rule.relative * size
    if rule.own == ONCE:
        rounded: Array = np.maximum(floor, ROUNDOFF[sides.dtype] * size if own is None else own)
        return rounded
    own = own if sides.wider else None
    dual: Any = 0.0 if own is None else EASE * (own if rule.own == EACH else float(own.max()))
    grown: Any = (
        rule.scaled * float(size.max()) if sides.magnitude is None else rule.share * sides.magnitude
    )
    allowed: Array = (sides.alone if own is None else 1) * floor + np.maximum(dual, grown)
    return allowed if sides.slack is None else allowed + EASE * sides.slack


def allows_everywhere(error: float, largest: float, *, dtype: str, terms: Terms) -> bool:
    """Whether an error is allowed at every element of a result whose largest true magnitude is
    that: what judge_output would find, without a look at the elements. False where either is not
    finite.
    """
    rule = one_side(terms.op, dtype, terms=terms.count, accumulation=terms.accumulation)
    grown = 0.0 if rule.own == ONCE else rule.scaled * largest
    return rule.judged and math.isfinite(largest) and error <= rule.absolute + grown


def _accumulated_narrowly(
    sides: Sides, error: Array, own: Array | None, size: Array, partial: int
) -> bool:
    """Whether many elements are off by more than the rounding of each result, and what goes before
    it in the wider type, explains.
    """
    if sides.dtype not in NARROW or own is None or error.size < 32:
        return False
    rounded = 0.3 * math.sqrt(1 + partial / 2) * ROUNDOFF[sides.dtype] * _rms(size)
    return _rms(error) > 2.5 * max(
        _rms(own), rounded, 0.0 if sides.slack is None else EASE * _rms(sides.slack)
    )


def _rms(values: Array) -> float:
    return math.sqrt(float(np.mean(np.square(values))))
