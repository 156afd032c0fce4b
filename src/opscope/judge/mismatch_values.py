# SPDX-License-Identifier: Apache-2.0
"""Explanations of a difference that look at elements alone, wherever they stand: a constant, the
sign, a factor, an offset, a rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from opscope.arrays import Array, Bools, Ints
from opscope.narrow import narrowed, widened

FEWEST = 4  # elements that an explanation with a free number must hold for
_NAMED = {
    math.sqrt(2): "sqrt(2)",
    math.sqrt(0.5): "1/sqrt(2)",
    math.pi: "pi",
    math.e: "e",
    math.log(2): "ln 2",
    1 / math.log(2): "1/ln 2",
}


class Explanation(msgspec.Struct, frozen=True):
    """One explanation: its kind (a key for programs), and the sentence for people."""

    kind: str
    words: str


class Sides(msgspec.Struct, frozen=True):
    """Both sides as float64 (complex128) of one shape, where they disagree, and how near is
    equal.
    """

    target: Array
    golden: Array
    absolute: float
    relative: float
    wrong: Bools

    def same(self, array: Array, wanted: Array | None = None) -> bool:
        """Whether an array is target (or what is wanted) within rounding, NaN and infinities
        included.
        """
        target = self.target if wanted is None else wanted
        places = np.unravel_index(probes(array.size), array.shape)  # most explanations fail at once
        if unlike(target[places], array[places], self.absolute, self.relative).any():
            return False
        return not bool(unlike(target, array, self.absolute, self.relative).any())


def probes(size: int) -> Ints:
    """Some places of an array, spread over it."""
    return np.linspace(0, size - 1, min(size, 512)).astype(np.int64)


def unlike(target: Array, golden: Array, absolute: float, relative: float) -> Bools:
    """Where two arrays of one shape differ by more than is allowed; NaN is NaN, and an infinity
    only itself.
    """
    with np.errstate(all="ignore"):
        far = ~(np.abs(target - golden) <= absolute + relative * np.abs(golden))
        return np.asarray(far & ~((target == golden) | (np.isnan(target) & np.isnan(golden))))


def _sign(sides: Sides) -> Explanation | None:
    if sides.same(-sides.golden):
        return Explanation("sign", "target is golden with the sign turned")
    if sides.golden.dtype.kind == "c" and sides.same(np.conj(sides.golden)):
        return Explanation("conjugate", "target is the complex conjugate of golden")
    return None


def _constant(sides: Sides) -> Explanation | None:
    value = sides.target.reshape(-1)[0]
    if sides.golden.size < FEWEST or not (
        np.isnan(sides.target).all() if np.isnan(value) else (sides.target == value).all()
    ):
        return None
    return Explanation("constant", f"target is {said(value)} everywhere")


def factor_of(sides: Sides) -> Any:
    """The factor that comes nearest to turning golden into target, over finite pairs; None where it
    is no number.
    """
    finite = np.isfinite(sides.target) & np.isfinite(sides.golden)
    t, g = sides.target[finite], sides.golden[finite]
    power = float(np.vdot(g, g).real)
    if np.count_nonzero(g) < FEWEST or not 0 < power < math.inf:
        return None
    return np.vdot(g, t) / power


def _scale(sides: Sides) -> Explanation | None:
    factor = factor_of(sides)
    if (
        factor is None
        or factor == 0
        or not np.isfinite(factor)
        or not sides.same(sides.golden * factor)
    ):
        return None
    return Explanation("scale", f"target is golden times {factor_words(factor)}")


def factor_words(factor: Any) -> str:
    """A factor as a person would say it: 2, 1/8, sqrt(2), 1/sqrt(96), 0.3717."""
    if isinstance(factor, complex):
        return f"{factor:.6g}"
    value, sign = abs(float(factor)), "-" if factor < 0 else ""
    for known, words in _NAMED.items():
        if math.isclose(value, known, rel_tol=1e-5):
            return sign + words
    for number, words in (
        (value, "{}"),
        (1 / value, "1/{}"),
        (value * value, "sqrt({})"),
        (1 / (value * value), "1/sqrt({})"),
    ):
        if (
            round(number)
            and abs(number) < 1e7
            and math.isclose(number, round(number), rel_tol=2e-5)
        ):
            return sign + words.format(round(number))
    return f"{factor:.6g}"


def _offset(sides: Sides) -> Explanation | None:
    finite = np.isfinite(sides.target) & np.isfinite(sides.golden)
    if np.count_nonzero(finite) < FEWEST:
        return None
    offset = np.mean(sides.target[finite] - sides.golden[finite])
    if not offset or not sides.same(sides.golden + offset):
        return None
    return Explanation("offset", f"target is golden plus {said(offset)}")


_GRIDS: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("float16", lambda g: g.astype(np.float16).astype(np.float64)),
    ("bfloat16", lambda g: _grid(g, "bfloat16")),
    ("TF32 (10 bits of mantissa)", lambda g: _cut(g, 13, nearest=True)),
    ("bfloat16, by cutting off", lambda g: _cut(g, 16, nearest=False)),
    ("float8_e4m3fn", lambda g: _grid(g, "float8_e4m3fn")),
    ("float8_e5m2", lambda g: _grid(g, "float8_e5m2")),
    ("integers", np.rint),
)


def _grid(values: Array, name: str) -> Array:
    """float32 values rounded to a narrow format."""
    return widened(narrowed(values.astype(np.float32), name)).astype(np.float64)


def _cut(values: Array, bits: int, *, nearest: bool) -> Array:
    """float32 values with so many last bits of the mantissa rounded away or cut off."""
    raw = values.astype(np.float32).view(np.uint32)
    raised = raw + np.uint32(1 << (bits - 1)) if nearest else raw
    return (raised & np.uint32(0xFFFFFFFF << bits & 0xFFFFFFFF)).view(np.float32).astype(np.float64)


def _rounded(sides: Sides) -> Explanation | None:
    if sides.golden.dtype.kind == "c":
        return None
    some = sides.target.reshape(-1)[probes(sides.target.size)]
    for name, rounding in _GRIDS:
        if not np.array_equal(rounding(some), some, equal_nan=True):
            continue
        if not np.array_equal(rounding(sides.target), sides.target, equal_nan=True):
            continue
        if (
            sides.same(rounding(sides.golden))
            and np.unique(sides.target[np.isfinite(sides.target)]).size >= FEWEST
        ):
            return Explanation("rounded", f"target is golden rounded to {name}")
    return None


def said(value: Any) -> str:
    """A number in words short enough for a sentence."""
    number = value.item() if hasattr(value, "item") else value
    return f"{number:.6g}" if isinstance(number, float | int | complex) else str(number)


def simple(sides: Sides) -> Iterator[Explanation]:
    """The explanations that need no shape, for elements that were picked out of one."""
    for rule in SIMPLE:
        explanation = rule(sides)
        if explanation is not None:
            yield explanation


SIMPLE: tuple[Callable[[Sides], Explanation | None], ...] = (
    _constant,
    _sign,
    _scale,
    _offset,
    _rounded,
)
