# SPDX-License-Identifier: Apache-2.0
"""Whether a target agrees with its golden: from all metrics of the values, from statistics alone, from digests alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from opscope.kernels.pair import Pair, pair

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.judge.tolerance import Tolerance

EQUAL, AGREE, DIFFER, UNKNOWN = "equal", "agree", "differ", "unknown"
NOISE = 64.0  # conditioning of an operator nobody knows: an error this much larger than the inputs' is its own


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of one pair of tensors, one of equal, agree, differ, unknown, with the error, what is allowed of it, and why."""

    verdict: str
    error: float | None = None
    allowed: float | None = None
    words: str = ""


class Summary(Protocol):
    """The statistics of a tensor that a comparison without values needs; rows of table tensors and kernels.Statistics have them."""

    @property
    def size(self) -> int | None: ...
    @property
    def nan(self) -> int | None: ...
    @property
    def pos_inf(self) -> int | None: ...
    @property
    def neg_inf(self) -> int | None: ...
    @property
    def min(self) -> float | None: ...
    @property
    def max(self) -> float | None: ...
    @property
    def mean(self) -> float | None: ...
    @property
    def l2norm(self) -> float | None: ...
    @property
    def digest(self) -> int | None: ...


def compare_values(target: NDArray[Any], golden: NDArray[Any], tolerance: Tolerance, *, threads: int = 1) -> tuple[Pair, Agreement]:
    """Both arrays measured and judged; a second pass counts the elements beyond the tolerance only where the first cannot tell."""
    found = pair(target, golden, threads=threads)
    if _within_at_once(found, tolerance) is None:
        found = pair(target, golden, threads=threads, allowed=tolerance.allowed(found.max_golden))
    return found, agrees(found, tolerance)


def agrees(found: Pair, tolerance: Tolerance, *, input_error: float | None = None, conditioning: float | None = None) -> Agreement:
    """Answers whether a measured pair lies within a tolerance.

    Where the inputs differ already, input_error is the largest of their relative Euclidean errors and conditioning the factor by
    which the operator may magnify it (judge.conditioning; NOISE where it is not known): then the output's relative Euclidean
    error decides. A pair measured with allowed=tolerance.allowed(max_golden) is judged element by element; otherwise a difference
    that neither the largest absolute nor the largest relative error nor the ULPs decide is judged by the share of the scale.
    """
    if found.differing == 0:
        return Agreement(verdict=EQUAL, error=0.0, allowed=0.0, words="the same numbers")
    if not tolerance.judged:
        return Agreement(verdict=UNKNOWN, error=found.relative_euclidean, words=tolerance.reason)
    if found.nonfinite_mismatch:
        return Agreement(verdict=DIFFER, error=math.inf, allowed=0.0, words=nonfinite_words(found))
    if input_error:
        return _amplified(found, tolerance, input_error, NOISE if conditioning is None else conditioning)
    within = _within_at_once(found, tolerance)
    absolute, relative = tolerance.allowed(found.max_golden)
    bound = absolute + relative * (found.max_golden or 0.0)
    if within is None:
        within = found.beyond == 0 if found.allowed == (absolute, relative) else (found.max_abs or 0.0) <= bound
    if within:
        return Agreement(verdict=AGREE, error=found.max_abs, allowed=bound, words=f"within {tolerance.reason}")
    return Agreement(verdict=DIFFER, error=found.max_abs, allowed=bound, words=_beyond_words(found, tolerance, bound))


def _within_at_once(found: Pair, tolerance: Tolerance) -> bool | None:
    """Whether every element is within the tolerance; None where only a count of the elements beyond it can tell."""
    absolute, relative = tolerance.allowed(found.max_golden)
    if found.differing == 0:
        return True
    if found.max_abs is None or not tolerance.judged or found.nonfinite_mismatch:
        return False
    by_ulp = tolerance.ulp > 0 and found.ulp_max is not None and found.ulp_max <= tolerance.ulp
    if by_ulp or found.max_abs <= absolute or (found.max_rel or 0.0) <= relative:
        return True
    return None if relative and found.max_abs <= absolute + relative * (found.max_golden or 0.0) else False


def _amplified(found: Pair, tolerance: Tolerance, input_error: float, conditioning: float) -> Agreement:
    own = tolerance.relative + tolerance.scaled + (tolerance.absolute / found.max_golden if found.max_golden else 0.0)
    error = found.relative_euclidean if found.relative_euclidean is not None else math.inf
    allowed = own + conditioning * input_error
    factor = error / input_error
    words = f"the inputs differ by {input_error:.3g} of their norm, the output by {error:.3g}: {factor:.3g} times as much"
    if error <= allowed:
        return Agreement(verdict=AGREE, error=error, allowed=allowed, words=f"{words}, as this operator may")
    return Agreement(verdict=DIFFER, error=error, allowed=allowed, words=f"{words}; this operator may magnify it {conditioning:.3g} times")


def nonfinite_words(found: Pair) -> str:
    """How the non-finite elements of two sides differ, in words."""
    parts = []
    for name, word in (("nan", "NaN"), ("pos_inf", "+Inf"), ("neg_inf", "-Inf")):
        one, other = getattr(found, f"{name}_target"), getattr(found, f"{name}_golden")
        if one != other:
            parts.append(f"{one} {word} in target, {other} in golden")
    return "; ".join(parts) or f"{found.nonfinite_mismatch} NaN or Inf at other places"


def _beyond_words(found: Pair, tolerance: Tolerance, bound: float) -> str:
    if tolerance.exact:
        return f"{found.differing} of {found.size} elements differ; {tolerance.reason}"
    return f"off by up to {found.max_abs:.3g}, {bound:.3g} is allowed of {tolerance.reason}"


def agrees_by_statistics(target: Summary, golden: Summary, tolerance: Tolerance) -> Agreement:
    """Answers whether two tensors agree as far as their statistics tell; equal digests of one type and shape make them equal.

    If every element were within e of its golden, extremes and mean would be within e and the norms within sqrt(size) e.
    """
    if target.digest is not None and target.digest == golden.digest and target.size == golden.size:
        return Agreement(verdict=EQUAL, error=0.0, allowed=0.0, words="the same digest")
    if target.size != golden.size:
        return Agreement(verdict=DIFFER, words=f"{target.size} elements beside {golden.size}")
    if not tolerance.judged:
        return Agreement(verdict=UNKNOWN, words=tolerance.reason)
    for name, word in (("nan", "NaN"), ("pos_inf", "+Inf"), ("neg_inf", "-Inf")):
        one, other = getattr(target, name), getattr(golden, name)
        if one is not None and other is not None and one != other:
            return Agreement(verdict=DIFFER, error=math.inf, allowed=0.0, words=f"{one} {word} in target, {other} in golden")
    return _by_moments(target, golden, tolerance)


def _by_moments(target: Summary, golden: Summary, tolerance: Tolerance) -> Agreement:
    differences = [
        (name, abs(one - other), math.sqrt(golden.size or 1) if name == "l2norm" else 1.0)
        for name in ("min", "max", "mean", "l2norm")
        if (one := getattr(target, name)) is not None and (other := getattr(golden, name)) is not None
    ]
    if not differences:
        return agrees_by_digest(target.digest, golden.digest, tolerance)
    largest = max((abs(x) for x in (golden.min, golden.max) if x is not None), default=golden.l2norm or 0.0)
    absolute, relative = tolerance.allowed(largest)
    ulps = tolerance.ulp * tolerance.relative
    bound = absolute + max(relative, ulps) * largest
    name, error, share = max(differences, key=lambda entry: entry[1] / entry[2])
    slack = 1e-12 * largest  # statistics themselves are rounded
    if error / share <= bound + slack:
        same = all(entry[1] == 0 for entry in differences)
        return Agreement(
            verdict=AGREE, error=error / share, allowed=bound, words="the same statistics" if same else "statistics within tolerance"
        )
    return Agreement(
        verdict=DIFFER, error=error / share, allowed=bound, words=f"{name} is off by {error:.3g}, {bound * share:.3g} is allowed"
    )


def agrees_by_digest(target: int | str | None, golden: int | str | None, tolerance: Tolerance) -> Agreement:
    """Answers what two digests of one kind tell: equal, or different bits, which is a difference only where results are exact."""
    if target is None or golden is None:
        return Agreement(verdict=UNKNOWN, words="neither values nor statistics nor digests on both sides")
    if target == golden:
        return Agreement(verdict=EQUAL, error=0.0, allowed=0.0, words="the same digest")
    if tolerance.exact:
        return Agreement(verdict=DIFFER, words=f"the digests differ; {tolerance.reason}")
    return Agreement(verdict=UNKNOWN, words="the digests differ; by how much they do not tell")
