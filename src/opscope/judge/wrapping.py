# SPDX-License-Identifier: Apache-2.0
"""Integers that wrapped: how far a wrapped value is followed, what it would be unwrapped, and when
wrapping is what was wanted.

A wrapped value stays finite, so nothing of it shows until it becomes a float that has no root or
logarithm. It is followed through arithmetic, conversions and moves; remainders, bit operations,
comparisons and indexing end it. Hashes, checksums and generators of random numbers compute modulo a
power of two on purpose.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.judge.arguments import NO_ARGUMENTS, Arguments
from opscope.judge.integers import ARITHMETIC, INTERVALS, NEGATION, Operands, Span, integer_bits
from opscope.judge.limits import integer_range, largest_finite
from opscope.judge.reading import Reading
from opscope.operators.catalogue import family, kin, traits_of

if TYPE_CHECKING:
    from opscope.arrays import Array

UNSIGNED = 0x80
WRAPS = NEGATION | ARITHMETIC | UNSIGNED
MULTIPLIER = 1 << 16  # odd factors from here on scatter bits: 69069, 1664525, 16777619, 2654435761


class Wrapped(msgspec.Struct, frozen=True):
    """From which origins a value wrapped, and between which values it would lie unwrapped; None
    where that is not known.
    """

    bits: int
    span: Span | None


Seen = Sequence[tuple[Reading, "Wrapped | None"]]


def wraps_of(
    op: str,
    status: int | None,
    arguments: Arguments,
    inputs: Sequence[Reading],
    outputs: Sequence[Reading],
) -> int:
    """Bits of a call whose integers wrapped: as the recorder found by their values, else as their
    extremes prove.
    """
    if not outputs or integer_range(outputs[0].dtype) is None:
        return 0
    return (status or 0) & WRAPS or integer_bits(op, arguments, inputs, outputs)


def reduces(op: str) -> bool:
    """Whether an operator takes a number modulo another, or only compares it."""
    known = traits_of(op)
    return known.modulo or known.predicate


def follows(op: str) -> bool:
    """Whether a wrapped input is a wrapped output: arithmetic, conversions, moves."""
    known = traits_of(op)
    if known.bitwise or reduces(op):
        return False
    return INTERVALS.find(op) is not None or known.cast or known.moves or kin(op) == "div"


def scatters(op: str, arguments: Arguments, inputs: Sequence[Reading]) -> bool:
    """Whether a product has a factor as hashes and linear congruential generators have: one odd,
    large number.
    """
    if traits_of(op).bound != "product":
        return False
    constants = [
        reading.min_int
        for reading in inputs
        if reading.size == 1 and reading.min_int == reading.max_int
    ]
    factors = [
        *(value for _, value in arguments.scalars if isinstance(value, int)),
        *(one for one in constants if one is not None),
    ]
    return any(factor % 2 == 1 and abs(factor) >= MULTIPLIER for factor in factors)


def unwrapped(op: str, arguments: Arguments, seen: Seen) -> Span | None:
    """Between which values the result of a call lies whose wrapped inputs are taken unwrapped; None
    where that is not known.
    """
    rule = INTERVALS.find(op)
    moved = rule is None and kin(op) != "div"
    operands = _operands(NO_ARGUMENTS if moved else arguments, seen)
    if operands is None:
        return None
    if rule is None and not moved:
        return _ends("div", operands.spans)
    if rule is None:
        return (
            Span(
                min(span.low for span in operands.spans), max(span.high for span in operands.spans)
            )
            if operands.spans
            else None
        )
    if family(op) == "mul" and len(seen) == 2 and _same(seen[0][0], seen[1][0]):
        rule = INTERVALS.find("square") or rule
    return rule(operands)


def _same(a: Reading, b: Reading) -> bool:
    version = getattr(a, "version", None)
    return version is not None and version == getattr(b, "version", None)


def _operands(arguments: Arguments, seen: Seen) -> Operands | None:
    """Spans of tensors and scalars in the order of their slots, wrapped ones unwrapped."""
    spans: list[tuple[str, Span]] = []
    for reading, wrapped in seen:
        span = wrapped.span if wrapped is not None else _extremes(reading)
        if span is None:
            return None
        spans.append((reading.slot, span))
    spans += [
        (slot, Span(value, value, attained=True))
        for slot, value in arguments.scalars
        if not slot.startswith("kwargs.")
    ]
    spans.sort(key=lambda item: item[0])
    return Operands(
        tuple(span for _, span in spans),
        max((reading.size or 0 for reading, _ in seen), default=0),
        arguments,
    )


def _extremes(reading: Reading) -> Span | None:
    low, high = (
        (reading.min_int, reading.max_int)
        if reading.min_int is not None
        else (reading.min, reading.max)
    )
    return None if low is None or high is None else Span(low, high)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "acos": np.arccos,
    "asin": np.arcsin,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "div": np.divide,
    "true_divide": np.divide,
    "pow": np.power,
    "mul": np.multiply,
    "add": np.add,
    "sub": np.subtract,
    "logit": lambda a: np.log(a / (1.0 - a)),
    "xlogy": lambda a, b: a * np.log(b),
}
UNARY = frozenset(
    {
        "sqrt",
        "log",
        "log2",
        "log10",
        "log1p",
        "exp",
        "exp2",
        "expm1",
        "square",
        "reciprocal",
        "sinh",
        "cosh",
        "tan",
        "abs",
    }
)


def is_finite_unwrapped(
    op: str, arguments: Arguments, seen: Seen, outputs: Sequence[Reading]
) -> bool:
    """Whether a call that made NaN or infinities would have made none of its wrapped inputs' true
    values, as far as extremes tell.
    """
    operands = _operands(arguments, seen)
    span = None if operands is None else _ends(family(op), operands.spans)
    limits = [limit for out in outputs if (limit := largest_finite(out.dtype)) is not None]
    return span is not None and bool(limits) and max(abs(span.low), abs(span.high)) <= min(limits)


def _ends(name: str, spans: Sequence[Span]) -> Span | None:
    """Extremes of an element-wise function over its operands' corners, 0 among them where it lies
    between; None when not finite.
    """
    function = getattr(np, name) if name in UNARY else FUNCTIONS.get(name)
    if function is None or not spans:
        return None
    corners = [
        [
            float(value)
            for value in {span.low, span.high, *((0,) if span.low < 0 < span.high else ())}
        ]
        for span in spans
    ]
    with np.errstate(all="ignore"):
        try:
            results: list[Array] = [function(*corner) for corner in itertools.product(*corners)]
        except (TypeError, ValueError, ZeroDivisionError):
            return None
    values = [float(value) for value in results]
    return Span(min(values), max(values)) if all(math.isfinite(value) for value in values) else None
