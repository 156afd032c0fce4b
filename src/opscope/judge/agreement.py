# SPDX-License-Identifier: Apache-2.0
"""Whether a target agrees with its golden, from all metrics of their values.

What statistics and digests tell, and what is allowed where inputs differ already, is judged for all
rows at once (compare.pair.tensors, compare.side.conditions).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from opscope.judge.tolerance import Tolerance
    from opscope.kernels.pair import Pair

EQUAL, AGREE, DIFFER, UNKNOWN = "equal", "agree", "differ", "unknown"


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of one pair of tensors, one of equal, agree, differ, unknown, with the error,
    what is allowed of it, and why.
    """

    verdict: str
    error: float | None = None
    allowed: float | None = None
    words: str = ""


def agrees(pair: Pair, tolerance: Tolerance) -> Agreement:
    """Answers whether the output of a call whose inputs agree lies within a tolerance.

    A pair measured with allowed=tolerance.allowed(max_golden) is judged element by element;
    otherwise a difference that neither the largest absolute nor the largest relative error nor the
    ULPs decide is judged by the share of the scale.
    """
    if pair.differing == 0:
        return Agreement(verdict=EQUAL, error=0.0, allowed=0.0, words="the same numbers")
    if not tolerance.judged:
        return Agreement(verdict=UNKNOWN, error=pair.relative_euclidean, words=tolerance.reason)
    if pair.nonfinite_mismatch:
        return Agreement(verdict=DIFFER, error=math.inf, allowed=0.0, words=nonfinite_words(pair))
    within = _within_at_once(pair, tolerance)
    absolute, relative = tolerance.allowed(pair.max_golden)
    bound = absolute + relative * (pair.max_golden or 0.0)
    if within is None:
        within = (
            pair.beyond == 0
            if pair.allowed == (absolute, relative)
            else (pair.max_abs or 0.0) <= bound
        )
    if within:
        return Agreement(
            verdict=AGREE, error=pair.max_abs, allowed=bound, words=f"within {tolerance.reason}"
        )
    return Agreement(
        verdict=DIFFER,
        error=pair.max_abs,
        allowed=bound,
        words=_beyond_words(pair, tolerance, bound),
    )


def _within_at_once(pair: Pair, tolerance: Tolerance) -> bool | None:
    """Whether every element is within the tolerance; None where only a count of the elements beyond
    it can tell.
    """
    absolute, relative = tolerance.allowed(pair.max_golden)
    if pair.differing == 0:
        return True
    if pair.max_abs is None or not tolerance.judged or pair.nonfinite_mismatch:
        return False
    by_ulp = tolerance.ulp > 0 and pair.ulp_max is not None and pair.ulp_max <= tolerance.ulp
    if by_ulp or pair.max_abs <= absolute or (pair.max_rel or 0.0) <= relative:
        return True
    return (
        None
        if relative and pair.max_abs <= absolute + relative * (pair.max_golden or 0.0)
        else False
    )


def nonfinite_words(pair: Pair) -> str:
    """How the non-finite elements of two sides differ, in words."""
    parts = []
    for name, word in (("nan", "NaN"), ("pos_inf", "+Inf"), ("neg_inf", "-Inf")):
        one, other = getattr(pair, f"{name}_target"), getattr(pair, f"{name}_golden")
        if one != other:
            parts.append(f"{one} {word} in target, {other} in golden")
    return "; ".join(parts) or f"{pair.nonfinite_mismatch} NaN or Inf at other places"


def _beyond_words(pair: Pair, tolerance: Tolerance, bound: float) -> str:
    if tolerance.exact:
        return f"{pair.differing} of {pair.size} elements differ; {tolerance.reason}"
    return f"off by up to {pair.max_abs:.3g}, {bound:.3g} is allowed of {tolerance.reason}"
