# SPDX-License-Identifier: Apache-2.0
"""Whether what compiled code made of a graph is a correct result of it.

Sides of one output, as float64 or int64: `compiled`; `eager`, the graph operator by operator;
`true`, the same in double precision, where it can be had; `moved`, the graph with every rounding
made otherwise. A correct compiler is as near to the true result as those that round otherwise:

    |compiled - true| <= 8 max(|eager - true|, spread of moved, their mean) + 8 u |true|

A result that jumps (the index of a maximum, a mask) may jump for the compiler where it does for
`moved`: as many elements as four times those of the side that jumps most, and as one more. Where no
side is certain to be finite nothing is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from opscope.arrays import Array

EASE = 8.0  # times the error that correct results show
JUMPS = 4  # times the elements that jump
FAR = 1024  # units of rounding; what moves by less has not jumped


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """One output from all that made it; unit is the unit roundoff of its type, 0 of integers."""

    compiled: Array
    eager: Array
    moved: Sequence[Array]
    true: Array | None = None
    unit: float = 0.0


class Deviation(msgspec.Struct, frozen=True, kw_only=True):
    """Elements of an output that no correct compiler makes: how many of how many, the worst, what
    it is and should be, its error and what was allowed.
    """

    elements: int
    of: int
    worst: tuple[int, ...]
    got: float
    expected: float
    error: float
    tolerance: float


def deviation(sides: Sides) -> Deviation | None:
    """What deviates, None where the compiled result is one of the correct ones.

    Raises ValueError for sides of different shapes.
    """
    if any(each.shape != sides.compiled.shape for each in (sides.eager, *sides.moved)):
        raise ValueError("sides of different shapes")
    reference = sides.eager if sides.true is None else sides.true
    allowed = _allowed(sides, reference)
    beyond = _beyond(sides.compiled, sides, reference, allowed)
    count = int(beyond.sum())
    if not count:
        return None
    jumps = max((int(_jumped(each, sides, allowed).sum()) for each in sides.moved), default=0)
    if count <= JUMPS * jumps:
        return None
    with np.errstate(all="ignore"):
        error = np.abs(sides.compiled.astype(np.float64) - reference)
    ranked = np.where(beyond, np.where(np.isnan(error), np.inf, error), -1.0)
    worst = np.unravel_index(int(np.argmax(ranked)), ranked.shape)
    return Deviation(
        elements=count,
        of=int(beyond.size),
        worst=tuple(int(each) for each in worst),
        got=float(sides.compiled[worst]),
        expected=float(sides.eager[worst]),
        error=float(error[worst]),
        tolerance=float(allowed[worst]),
    )


def _allowed(sides: Sides, reference: Array) -> Array:
    """How far each element may be from the reference; infinity where it is not certain."""
    every = [sides.eager, *sides.moved]
    with np.errstate(all="ignore"):
        spread = np.zeros(reference.shape)
        for each in every:
            spread = np.fmax(spread, np.abs(each.astype(np.float64) - reference))
        certain = np.isfinite(spread)
        mean = float(np.mean(_steady(spread[certain]))) if certain.any() else 0.0
        allowed = EASE * (np.fmax(spread, mean) + sides.unit * np.abs(reference))
    return np.where(np.isnan(allowed), np.inf, allowed)


def _steady(spread: Array) -> Array:
    """The spread of elements without those that jump, which tell of no other."""
    if not spread.size:
        return spread
    return np.minimum(spread, 8.0 * float(np.quantile(spread, 0.9)))


def _beyond(values: Array, sides: Sides, reference: Array, allowed: Array) -> Array:
    """Elements farther from the reference than allowed, or not finite where every side is."""
    with np.errstate(all="ignore"):
        error = np.abs(values.astype(np.float64) - reference)
        far = error > allowed
    sure = np.isfinite(reference) & np.logical_and.reduce(
        [np.isfinite(each) for each in (sides.eager, *sides.moved)]
    )
    lost = ~np.isfinite(values) & sure
    wrong: Array = (far & sure) | lost | _finite_instead(values, sides, reference)
    return wrong


def _finite_instead(values: Array, sides: Sides, reference: Array) -> Array:
    """Elements that are finite though no side is, all of one kind."""
    every = (sides.eager, reference, *sides.moved)
    nan = np.logical_and.reduce([np.isnan(each) for each in every])
    wrong: Array = nan & np.isfinite(values)
    return wrong


def _jumped(values: Array, sides: Sides, allowed: Array) -> Array:
    """Elements that a side with other roundings moves far beyond what it moves the rest by."""
    certain = allowed[np.isfinite(allowed)]
    steady = float(np.quantile(certain, 0.5)) if certain.size else 0.0
    with np.errstate(all="ignore"):
        moved = np.abs(values.astype(np.float64) - sides.eager)
        far = moved > np.maximum(steady, FAR * sides.unit * np.abs(sides.eager))
    jumped: Array = far | (np.isfinite(values) != np.isfinite(sides.eager))
    return jumped
