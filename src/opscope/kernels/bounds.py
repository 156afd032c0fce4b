# SPDX-License-Identifier: Apache-2.0
"""Whether an in-place operator can make a non-finite result, told from the extremes of its inputs
before it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite, prod

from opscope.kernels.calls import Observed, Operator

LIMITS = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}


def excluded(operator: Operator, inputs: list[Observed], scalars: list[float]) -> bool:
    """Whether the extremes of its inputs exclude that an in-place operator makes a non-finite
    result.
    """
    rule = BOUNDS.get(operator.bound or "")
    if rule is None:
        return False
    known = []
    for seen in inputs:
        statistics = seen.version.statistics if seen.version is not None else None
        if statistics is None or statistics.nan or statistics.pos_inf or statistics.neg_inf:
            return False
        if statistics.max is not None:
            known.append((statistics.min, statistics.max))
    if not all(map(isfinite, scalars)):
        return False
    limit = min(
        (LIMITS[seen.facts.dtype] for seen in inputs if seen.facts.dtype in LIMITS), default=0.0
    )
    return rule(known, scalars) < limit


Extremes = list[tuple[float, float]]


def largest(extremes: tuple[float, float]) -> float:
    return max(abs(extremes[0]), abs(extremes[1]))


def smallest(extremes: tuple[float, float]) -> float:
    """Least magnitude, where the extremes have one sign; 0 when they tell nothing."""
    return max(extremes[0], -extremes[1], 0.0)


def scale(scalars: list[float]) -> float:
    return prod(max(1.0, abs(s)) for s in scalars)


def inverse(scalars: list[float]) -> float:
    return prod(max(1.0, 1.0 / abs(s)) if s else inf for s in scalars)


def bound_sum(known: Extremes, scalars: list[float]) -> float:
    return (sum(map(largest, known)) * 2 + 1.0) * scale(scalars)


def bound_product(known: Extremes, scalars: list[float]) -> float:
    return prod(max(1.0, largest(e)) for e in known) * scale(scalars)


def bound_quotient(known: Extremes, scalars: list[float]) -> float:
    dividends, divisors = known[:-1] or known, known[1:][-1:]
    if any(smallest(e) == 0.0 for e in divisors):
        return inf
    top = 1.0 + sum(map(largest, dividends)) * 2
    return (
        top
        * prod(max(1.0, 1.0 / smallest(e)) for e in divisors)
        * inverse(scalars)
        * scale(scalars)
    )


def bound_square_root(known: Extremes, scalars: list[float]) -> float:
    return inf if any(e[0] < 0 for e in known) else bound_sum(known, scalars)


def bound_moments(known: Extremes, scalars: list[float]) -> float:
    return (1.0 + sum(map(largest, known))) ** 2 * 4 * scale(scalars)


def bound_kept(known: Extremes, scalars: list[float]) -> float:
    return max(map(largest, known), default=0.0) + scale(scalars)


def bound_overwritten(known: Extremes, scalars: list[float]) -> float:  # noqa: ARG001 - one signature for all bounds
    return 0.0


# Bounds of the magnitude of the result of an in-place operator, from the extremes of its tensors
# and its scalars. Each is coarse on purpose: it may only be too large. The names stand in
# Operator.bound.
BOUNDS: dict[str, Callable[[Extremes, list[float]], float]] = {
    "sum": bound_sum,
    "product": bound_product,
    "quotient": bound_quotient,
    "square_root": bound_square_root,
    "moments": bound_moments,
    "kept": bound_kept,
    "overwritten": bound_overwritten,
}
