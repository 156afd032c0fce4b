# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic that leaves its type: bits 0x10 (add, sub, mul, mac) and 0x8 (negating the
most negative integer).

Two ways to decide. From the exact extremes of the operands, by interval arithmetic: proven,
excluded, or undecided; wrapping that cannot be proven is never accused. From the values themselves,
exactly: that is what a recorder does when needs_values says that the extremes leave it open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from opscope.judge.arguments import Arguments
from opscope.judge.limits import integer_range
from opscope.judge.reading import Reading, extremes
from opscope.judge.registry import Registry
from opscope.operators.catalogue import family, traits_of

NEGATION, ARITHMETIC = 0x8, 0x10


class Span(msgspec.Struct, frozen=True):
    """Every exact result lies in [low, high]; attained: both ends are results of some element."""

    low: float  # exact integers; floats where a wrapped value is followed beyond them
    high: float
    attained: bool = False

    @property
    def constant(self) -> bool:
        return self.low == self.high


class Operands(msgspec.Struct, frozen=True):
    """Spans of the operands in order, tensors and scalars alike, and how many elements a reduction
    may run over.
    """

    spans: tuple[Span, ...]
    elements: int
    arguments: Arguments


Interval = Callable[[Operands], "Span | None"]


INTERVALS: Registry[Interval] = Registry("interval")


def overflow_of(
    op: str, arguments: Arguments, inputs: Sequence[Reading], outputs: Sequence[Reading]
) -> bool | None:
    """Whether a call's integer results left their type: True proven, False excluded, None cannot be
    told from the extremes.
    """
    rule = INTERVALS.find(op)
    if rule is None or len(outputs) != 1:
        return False
    bounds = integer_range(outputs[0].dtype)
    if bounds is None:
        return False
    operands = _operands(arguments, inputs)
    span = None if operands is None else rule(operands)
    if span is None:
        return None
    if bounds[0] == 0 and traits_of(op).negates:
        return False  # who negates an unsigned integer wants its complement
    if bounds[0] <= span.low and span.high <= bounds[1]:
        return False
    if span.attained or span.low > bounds[1] or span.high < bounds[0]:
        return True
    seen = extremes(outputs[0])
    return True if seen is not None and (seen[0] < span.low or seen[1] > span.high) else None


def clipped_of(
    op: str, arguments: Arguments, inputs: Sequence[Reading], outputs: Sequence[Reading]
) -> int | None:
    """The bound of an integer type that a result lies at exactly while its true value lies beyond;
    None when that is not implied.

    Conversions and the families with an interval rule. A byte hits its bounds by chance, so there
    only a conversion counts.
    """
    bounds = integer_range(outputs[0].dtype) if len(outputs) == 1 else None
    seen = None if bounds is None else extremes(outputs[0])
    if bounds is None or seen is None:
        return None
    span = _converted_span(op, inputs)
    if span is None and bounds[1] > 255:
        rule, operands = INTERVALS.find(op), _operands(arguments, inputs)
        span = None if rule is None or operands is None else rule(operands)
    if span is None or any(
        extremes(r) is not None and r.dtype == outputs[0].dtype and _at_bound(extremes(r), bounds)
        for r in inputs
    ):
        return None
    if seen[1] == bounds[1] and span.high > bounds[1]:
        return bounds[1]
    return bounds[0] if seen[0] == bounds[0] < 0 and span.low < bounds[0] else None


def _at_bound(ends: tuple[int, int] | None, bounds: tuple[int, int]) -> bool:
    return ends is not None and (ends[0] <= bounds[0] < 0 or ends[1] >= bounds[1])


def _converted_span(op: str, inputs: Sequence[Reading]) -> Span | None:
    """Where a floating-point source of a conversion lies, truncated; None for any other call."""
    if not traits_of(op).cast or not inputs:
        return None
    source = inputs[-1] if family(op) == "copy" else inputs[0]
    if integer_range(source.dtype) is not None or source.min is None or source.max is None:
        return None
    return Span(int(source.min), int(source.max))


def integer_bits(
    op: str, arguments: Arguments, inputs: Sequence[Reading], outputs: Sequence[Reading]
) -> int:
    """Bits 0x8 and 0x10 that the extremes prove; 0 when they prove none."""
    if overflow_of(op, arguments, inputs, outputs) is not True:
        return 0
    return NEGATION if traits_of(op).negates else ARITHMETIC


def needs_values(
    op: str, arguments: Arguments, inputs: Sequence[Reading], outputs: Sequence[Reading]
) -> bool:
    """Whether only the values can tell if a call's integer results left their type."""
    return overflow_of(op, arguments, inputs, outputs) is None


def _operands(arguments: Arguments, inputs: Sequence[Reading]) -> Operands | None:
    spans: list[tuple[str, Span]] = []
    for reading in inputs:
        if reading.slot.startswith("kwargs."):
            continue
        known = (0, 1) if reading.dtype == "bool" else extremes(reading)
        if known is None:
            return None
        spans.append((reading.slot, Span(*known, attained=True)))
    for slot, value in arguments.scalars:
        if slot.startswith("kwargs."):
            continue
        if isinstance(value, float) and not value.is_integer():
            # a float scalar makes the result a float, or is a dimension's neighbour nobody adds
            return None
        spans.append((slot, Span(int(value), int(value), attained=True)))
    spans.sort(key=lambda item: item[0])
    sizes = [reading.size or 0 for reading in inputs]
    return Operands(tuple(span for _, span in spans), max(sizes, default=0), arguments)


def _pairwise(a: Span, b: Span, values: Sequence[float]) -> Span:
    """Ends among these values; attained when one operand is constant, so that the other's extremes
    meet it.
    """
    return Span(
        min(values), max(values), (a.constant and b.attained) or (b.constant and a.attained)
    )


def _scale(span: Span, factor: int) -> Span:
    return Span(
        min(span.low * factor, span.high * factor),
        max(span.low * factor, span.high * factor),
        span.attained,
    )


def _alpha(operands: Operands) -> int | None:
    alpha = operands.arguments.number("kwargs.alpha", "2")
    if alpha is None:
        return 1
    return int(alpha) if float(alpha).is_integer() else None


def _sum_of(first: Span, second: Span) -> Span:
    return _pairwise(first, second, (first.low + second.low, first.high + second.high))


def _product_of(a: Span, b: Span) -> Span:
    return _pairwise(a, b, (a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high))


def _weighted(operands: Operands, *, first: int, sign: int) -> Span | None:
    """One operand and alpha times the other, added or subtracted."""
    alpha = _alpha(operands)
    if alpha is None or len(operands.spans) < 2:
        return None
    return _sum_of(operands.spans[first], _scale(operands.spans[1 - first], sign * alpha))


INTERVALS.of("add")(partial(_weighted, first=0, sign=1))  # a + alpha b
INTERVALS.of("sub")(partial(_weighted, first=0, sign=-1))  # a - alpha b
INTERVALS.of("rsub")(partial(_weighted, first=1, sign=-1))  # b - alpha a


@INTERVALS.of("mul")
def _multiply(operands: Operands) -> Span | None:
    """a b"""
    return _product_of(*operands.spans[:2]) if len(operands.spans) >= 2 else None


@INTERVALS.of("neg", "negative")
def _negate(operands: Operands) -> Span | None:
    """-a; only the most negative integer has no negative"""
    return _scale(operands.spans[0], -1) if operands.spans else None


@INTERVALS.of("abs")
def _absolute(operands: Operands) -> Span | None:
    """|a|"""
    if not operands.spans:
        return None
    a = operands.spans[0]
    return Span(0, max(abs(a.low), abs(a.high)), a.attained)


@INTERVALS.of("square")
def _square(operands: Operands) -> Span | None:
    """a a"""
    if not operands.spans:
        return None
    a = operands.spans[0]
    ends = (a.low * a.low, a.high * a.high)
    return Span(0 if a.low < 0 < a.high else min(ends), max(ends), a.attained)


@INTERVALS.of("pow")
def _power(operands: Operands) -> Span | None:
    """a ** b with a constant exponent of at most 64; a larger one is left to the values"""
    if len(operands.spans) < 2 or not operands.spans[1].constant:
        return None
    base, exponent = operands.spans[0], operands.spans[1].low
    if not 0 <= exponent <= 64:
        return None
    ends = (base.low**exponent, base.high**exponent)
    low = min(0, *ends) if exponent else 1
    return Span(low, max(ends), base.attained)


@INTERVALS.of("bitwise_left_shift", "__lshift__", "__ilshift__")
def _shift(operands: Operands) -> Span | None:
    """Shifting is asked for bits, not for a product: never an overflow."""
    return Span(0, 0) if operands.spans else None


@INTERVALS.of("sum", "cumsum")
def _sum(operands: Operands) -> Span | None:
    """Sums of at most all elements"""
    if not operands.spans:
        return None
    a, n = operands.spans[0], max(operands.elements, 1)
    return Span(min(a.low * n, a.low, 0), max(a.high * n, a.high, 0))


@INTERVALS.of("prod", "cumprod")
def _product(operands: Operands) -> Span | None:
    """Products of at most all elements, bounded by their bits"""
    if not operands.spans:
        return None
    largest = max(abs(operands.spans[0].low), abs(operands.spans[0].high))
    if largest <= 1:
        return Span(-largest, largest)
    if operands.elements * math.log2(largest) > 4096:
        return None
    return Span(-(largest**operands.elements), largest**operands.elements)


@INTERVALS.of("mm", "bmm", "mv", "dot", "matmul", "vdot", "inner")
def _contract(operands: Operands) -> Span | None:
    """Sums of products"""
    if len(operands.spans) < 2:
        return None
    each = _product_of(operands.spans[0], operands.spans[1])
    n = max(operands.elements, 1)
    return Span(min(each.low * n, 0), max(each.high * n, 0))


@INTERVALS.of("addmm", "baddbmm", "addmv", "addcmul")
def _multiply_add(operands: Operands) -> Span | None:
    """c + sums of products; factors beta, alpha and value are left to the values"""
    scaled = [
        slot
        for slot, value in operands.arguments.scalars
        if slot.startswith("kwargs.") and value != 1
    ]
    if len(operands.spans) < 3 or scaled:
        return None
    product = _product_of(operands.spans[1], operands.spans[2])
    n = max(operands.elements, 1)
    c = operands.spans[0]
    return Span(c.low + min(product.low * n, 0), c.high + max(product.high * n, 0))
