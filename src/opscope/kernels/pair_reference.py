# SPDX-License-Identifier: Apache-2.0
"""What two arrays have in common, in plain NumPy: the definition that the compiled kernel equals,
and its stand-in where it is missing.

Let t and g be the elements of target and golden in C order. A pair (t, g) is *finite* when both
are; every number below but the counts is over the finite pairs, d = |t - g|, all in float64.
docs/metrics.md has the table of definitions and edges.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from opscope.arrays import Array, Bools, Floats, Ints, Words
from opscope.errors import UsageError
from opscope.narrow import as_type, name_of, widened

BUCKETS = 65  # of the ULP histogram: bit lengths 0 to 64
THOUSANDTH = 0.001
FLOOR = float(np.finfo(np.float32).eps)  # of kl, as msaccucmp has it


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass over target and golden tells; None where a metric is not defined
    (docs/metrics.md).

    size counts elements, compared the finite pairs. differing counts unequal elements (NaN equals
    NaN, -0 equals 0); first_mismatch and worst_index are places in C order of the first such
    element and of the one that differs most (a non-finite element beside another value comes before
    every finite difference). nonfinite_mismatch counts elements of which at least one is not finite
    and that are no equal pair. beyond counts finite pairs with d > absolute + relative * |g|,
    (absolute, relative) being `allowed`. ulp_histogram[k] counts finite pairs whose ULP distance
    has bit length k: 0, 1, 2-3, 4-7, … Trailing zeros are left out.
    """

    size: int
    compared: int = 0
    differing: int = 0
    first_mismatch: int | None = None
    worst_index: int | None = None
    max_abs: float | None = None
    mean_abs: float | None = None
    rmse: float | None = None
    max_rel: float | None = None
    mean_rel: float | None = None
    accumulated_relative: float | None = None
    cosine: float | None = None
    relative_euclidean: float | None = None
    kl: float | None = None
    mean_target: float | None = None
    mean_golden: float | None = None
    std_target: float | None = None
    std_golden: float | None = None
    l2_target: float | None = None
    l2_golden: float | None = None
    max_golden: float | None = None
    within_1_1000: float | None = None
    within_5_1000: float | None = None
    ulp_max: int | None = None
    ulp_histogram: tuple[int, ...] = ()
    nan_target: int = 0
    nan_golden: int = 0
    pos_inf_target: int = 0
    pos_inf_golden: int = 0
    neg_inf_target: int = 0
    neg_inf_golden: int = 0
    nonfinite_mismatch: int = 0
    allowed: tuple[float, float] = (0.0, 0.0)
    beyond: int = 0


class Sums(msgspec.Struct, frozen=True):
    """What the pass itself gathers, before the metrics are worked out of it; sums are of values
    times 2**-exponent.
    """

    size: int
    exponent: int
    compared: int
    differing: int
    first_mismatch: int
    worst_index: int
    max_abs: float
    sum_abs: float
    squares: float
    max_rel: float
    sum_rel: float
    golden_zero_only: int
    dot: float
    squares_target: float
    squares_golden: float
    mean_target: float
    mean_golden: float
    variance_target: float
    variance_golden: float
    max_golden: float
    within_1: int
    within_5: int
    ulp_max: int
    histogram: tuple[int, ...]
    nonfinite: tuple[int, ...]  # NaN, +Inf, -Inf of target, then of golden
    nonfinite_mismatch: int
    beyond: int


def pair(target: Array, golden: Array, *, allowed: tuple[float, float] = (0.0, 0.0)) -> Pair:
    """Answers all metrics but kl of two arrays of one shape; kernels.pair.pair says more."""
    one, other = common(target, golden)
    exponent = exponent_of(one, other)
    return metrics(
        gather(one, other, allowed, exponent),
        allowed,
        alike=alike(target, golden),
    )


def exponent_of(target: Array, golden: Array) -> int:
    """By which power of two values are divided so that no square leaves float64: 0 unless a 64-bit
    float is beyond 2**±480.
    """
    if target.dtype.name not in ("float64", "complex128"):
        return 0
    finite = np.isfinite(target) & np.isfinite(golden)
    parts = (
        part
        for array in (target, golden)
        for part in ((array.real, array.imag) if array.dtype.kind == "c" else (array,))
    )
    largest = max(float(np.max(np.abs(part), where=finite, initial=0.0)) for part in parts)
    return 0 if largest == 0 or 2.0**-480 < largest < 2.0**480 else math.frexp(largest)[1] + 1


def common(target: Array, golden: Array) -> tuple[Array, Array]:
    """Both arrays in native byte order and in one type that holds either exactly; raises UsageError
    for other shapes or types.
    """
    if target.shape != golden.shape:
        raise UsageError(
            f"shapes {list(target.shape)} and {list(golden.shape)} differ; there is nothing "
            "to compare element by element"
        )
    joint = target.dtype if alike(target, golden) else _union(target.dtype, golden.dtype)
    joint = joint.newbyteorder("=")
    return as_type(target, joint), as_type(golden, joint)


def alike(target: Array, golden: Array) -> bool:
    """Whether both have one type, so that ULPs mean something."""
    return name_of(target.dtype) == name_of(golden.dtype)


def _union(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    kinds = {_kind(one), _kind(other)}
    if "complex" in kinds:
        return np.dtype(np.complex64 if max(one.itemsize, other.itemsize) <= 4 else np.complex128)
    if kinds == {"float"}:
        wide = "float64" in (one.name, other.name)
        return np.dtype(np.float64 if wide else np.float32)
    if kinds == {"int"}:
        joint = np.result_type(_whole(one), _whole(other))
        return joint if joint.kind in "iu" else np.dtype(np.float64)
    return np.dtype(np.float64)


def _whole(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind in "biu" else np.dtype(np.int8)  # int4 and the like


def _kind(dtype: np.dtype[Any]) -> str:
    name = name_of(dtype)
    if dtype.kind == "c":
        return "complex"
    if dtype.kind in "biu" or name.startswith(("int", "uint")):
        return "int"
    if dtype.kind == "f" or name.startswith(("bfloat", "float")):
        return "float"
    raise UsageError(f"elements of type {dtype} are no numbers; nothing is measured of them")


def gather(target: Array, golden: Array, allowed: tuple[float, float], exponent: int = 0) -> Sums:
    """The pass: two arrays of one shape and type."""
    t, g = target.reshape(-1), golden.reshape(-1)
    kind = _kind(t.dtype)
    if kind == "int" and t.dtype.kind not in "biu":
        t, g = t.astype(np.int8), g.astype(np.int8)
    with np.errstate(all="ignore"):
        steps = _distances(t, g)
        t, g = widened(t), widened(g)
        one, other = _classes(t), _classes(g)
        equal = np.asarray((t == g) | (one[0] & other[0]))
        finite = np.asarray(~(one | other).any(axis=0))
        parts = _Parts(t, g, finite, exponent)
        distance = steps[finite]
        return _sums(
            parts,
            equal,
            distance,
            allowed,
            (*one.sum(axis=1).tolist(), *other.sum(axis=1).tolist()),
        )


class _Parts:
    """The finite pairs of two flat arrays as float64 times 2**-exponent."""

    def __init__(self, t: Array, g: Array, finite: Bools, exponent: int) -> None:
        self.finite, self.exponent = finite, exponent
        self.t, self.g = _scaled(t[finite], exponent), _scaled(g[finite], exponent)
        if t.dtype.kind in "iu" and t.dtype.itemsize == 8:
            low, high = np.minimum(t, g)[finite], np.maximum(t, g)[finite]
            self.d = (high.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64)
        else:
            self.d = magnitude(self.t - self.g)
        self.size_g = magnitude(self.g)


def magnitude(values: Array) -> Array:
    """Absolute values; of complex numbers the float64 sqrt(re^2 + im^2), every operation
    rounded.
    """
    if values.dtype.kind != "c":
        return np.asarray(np.abs(values))
    return np.asarray(
        np.minimum(
            np.sqrt(values.real * values.real + values.imag * values.imag), np.finfo(np.float64).max
        )
    )


def _scaled(values: Array, exponent: int) -> Array:
    if values.dtype.kind == "c":
        wide = values.astype(np.complex128)
        scaled = np.empty_like(wide)
        scaled.real, scaled.imag = np.ldexp(wide.real, -exponent), np.ldexp(wide.imag, -exponent)
        return scaled
    return (
        np.asarray(np.ldexp(values.astype(np.float64), -exponent))
        if exponent
        else np.asarray(values.astype(np.float64))
    )


def _classes(values: Array) -> Bools:
    """Where an element is NaN, +Inf, -Inf. A complex one is NaN when either part is, else +Inf when
    either part is infinite.
    """
    if values.dtype.kind in "biu":
        return np.zeros((3, values.size), np.bool_)
    if values.dtype.kind == "c":
        nan = np.isnan(values)
        return np.stack([nan, ~nan & np.isinf(values), np.zeros_like(nan)])
    wide = values.astype(np.float64)
    return np.stack([np.isnan(wide), wide == np.inf, wide == -np.inf])


def _distances(t: Array, g: Array) -> Words:
    """ULP distances: how many steps from one number of the type to the next lie between; of a
    complex one the larger of its parts'.
    """
    if t.dtype.kind == "c":
        both = [
            _distances(np.ascontiguousarray(x), np.ascontiguousarray(y))
            for x, y in ((t.real, g.real), (t.imag, g.imag))
        ]
        return np.maximum(*both)
    one, other = _ordinals(t), _ordinals(g)
    low, high = np.minimum(one, other), np.maximum(one, other)
    return np.asarray(high.astype(np.uint64) - low.astype(np.uint64))


def _ordinals(values: Array) -> Array:
    """Integers in the order of the numbers, neighbours one apart, both zeros 0."""
    if values.dtype.kind == "b":
        return np.asarray(values.view(np.uint8) != 0).astype(np.int64)
    if values.dtype.kind in "iu":
        return values if values.dtype.itemsize == 8 else values.astype(np.int64)
    bits = np.ascontiguousarray(values).view(f"i{values.dtype.itemsize}").astype(np.int64)
    sign = np.int64(-(2 ** (8 * values.dtype.itemsize - 1)))
    return np.where(bits < 0, sign - bits, bits)


def _sums(
    p: _Parts,
    equal: Bools,
    ulp: Words,
    allowed: tuple[float, float],
    nonfinite: tuple[int, ...],
) -> Sums:
    real = p.t.dtype.kind != "c"
    size_t = p.t if real else magnitude(p.t)
    values_g = p.g if real else p.size_g
    dot = p.t * p.g if real else p.t.real * p.g.real + p.t.imag * p.g.imag
    unequal = np.flatnonzero(~equal)
    odd = np.flatnonzero(~equal & ~p.finite)
    zero = p.size_g == 0
    relative = p.d[~zero] / p.size_g[~zero]
    places = np.flatnonzero(p.finite)
    worst = (
        int(odd[0])
        if odd.size
        else int(places[np.argmax(p.d)])
        if p.d.size and p.d.max() > 0
        else -1
    )
    lengths = np.bincount(_bit_lengths(ulp), minlength=BUCKETS)
    limit = np.ldexp(allowed[0], -p.exponent) + allowed[1] * p.size_g
    some = bool(p.d.size)
    return Sums(
        size=equal.size,
        exponent=p.exponent,
        compared=int(p.d.size),
        differing=int(unequal.size),
        first_mismatch=int(unequal[0]) if unequal.size else -1,
        worst_index=worst,
        max_abs=float(p.d.max()) if some else 0.0,
        sum_abs=float(p.d.sum()),
        squares=float(np.square(p.d).sum()),
        max_rel=float(relative.max()) if relative.size else 0.0,
        sum_rel=float(relative.sum()),
        golden_zero_only=int((zero & (p.d != 0)).sum()),
        dot=float(dot.sum()),
        squares_target=float(np.square(size_t).sum()),
        squares_golden=float(np.square(p.size_g).sum()),
        mean_target=float(size_t.mean()) if some else 0.0,
        mean_golden=float(values_g.mean()) if some else 0.0,
        variance_target=float(size_t.var()) if some else 0.0,
        variance_golden=float(values_g.var()) if some else 0.0,
        max_golden=float(p.size_g.max()) if some else 0.0,
        within_1=int((p.d == 0).sum() + ((p.d != 0) & (p.d < THOUSANDTH * p.size_g)).sum()),
        within_5=int((p.d == 0).sum() + ((p.d != 0) & (p.d < 5 * THOUSANDTH * p.size_g)).sum()),
        ulp_max=int(ulp.max()) if ulp.size else 0,
        histogram=tuple(lengths.tolist()),
        nonfinite=nonfinite,
        nonfinite_mismatch=int(odd.size),
        beyond=int((p.d > limit).sum()),
    )


def _bit_lengths(numbers: Words) -> Ints:
    """Bit length of each number: of 0 it is 0."""
    lengths = np.zeros(numbers.size, np.int64)
    for shift in (32, 16, 8, 4, 2, 1):
        large = numbers >= np.uint64(1) << np.uint64(shift)
        lengths[large] += shift
        numbers = np.where(large, numbers >> np.uint64(shift), numbers)
    return lengths + (numbers > 0)


def metrics(sums: Sums, allowed: tuple[float, float], *, alike: bool) -> Pair:
    """The metrics from what the pass gathered; undefined ones are None. alike: both sides had one
    type, so ULPs mean something.
    """
    n, e = sums.compared, sums.exponent
    counted = Pair(
        size=sums.size,
        compared=n,
        differing=sums.differing,
        first_mismatch=sums.first_mismatch if sums.first_mismatch >= 0 else None,
        worst_index=sums.worst_index if sums.worst_index >= 0 else None,
        nan_target=sums.nonfinite[0],
        pos_inf_target=sums.nonfinite[1],
        neg_inf_target=sums.nonfinite[2],
        nan_golden=sums.nonfinite[3],
        pos_inf_golden=sums.nonfinite[4],
        neg_inf_golden=sums.nonfinite[5],
        nonfinite_mismatch=sums.nonfinite_mismatch,
        allowed=allowed,
        beyond=sums.beyond,
    )
    if n == 0:
        return counted
    histogram = list(sums.histogram) if alike else []
    while histogram and histogram[-1] == 0:
        histogram.pop()
    return msgspec.structs.replace(
        counted,
        max_abs=_up(sums.max_abs, e),
        mean_abs=_up(sums.sum_abs / n, e),
        rmse=_up(math.sqrt(sums.squares / n), e),
        max_rel=math.inf if sums.golden_zero_only else sums.max_rel,
        mean_rel=sums.sum_rel / n,
        accumulated_relative=sums.sum_rel,
        cosine=cosine(sums.dot, sums.squares_target, sums.squares_golden),
        relative_euclidean=relative_euclidean(sums.squares, sums.squares_golden),
        mean_target=_up(sums.mean_target, e),
        mean_golden=_up(sums.mean_golden, e),
        std_target=_up(math.sqrt(sums.variance_target), e),
        std_golden=_up(math.sqrt(sums.variance_golden), e),
        l2_target=_up(math.sqrt(sums.squares_target), e),
        l2_golden=_up(math.sqrt(sums.squares_golden), e),
        max_golden=_up(sums.max_golden, e),
        within_1_1000=sums.within_1 / n,
        within_5_1000=sums.within_5 / n,
        ulp_max=sums.ulp_max if alike else None,
        ulp_histogram=tuple(histogram),
    )


def _up(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


def cosine(dot: float, squares_target: float, squares_golden: float) -> float | None:
    """sum(t g) / (|t| |g|) within [-1, 1]; 1 of two zero vectors, None where one of them is zero
    and has no direction.
    """
    if squares_target == 0 and squares_golden == 0:
        return 1.0
    if squares_target == 0 or squares_golden == 0:
        return None
    return max(-1.0, min(1.0, dot / math.sqrt(squares_target) / math.sqrt(squares_golden)))


def relative_euclidean(squares: float, squares_golden: float) -> float:
    """sqrt(sum(d^2) / sum(g^2)); of a zero golden 0 where nothing differs, else infinity."""
    if squares_golden == 0:
        return 0.0 if squares == 0 else math.inf
    return math.sqrt(squares) / math.sqrt(squares_golden)


def kl(target: Array, golden: Array) -> float | None:
    """Kullback-Leibler divergence of target from golden, as msaccucmp defines it: sum(p ln(p / q)),
    p of target.

    Each side's finite pairs are scaled to 0 … 1 by its least and largest (left alone when these are
    equal), floored at float32's epsilon and divided by their sum. None without a finite pair. Two
    more passes, with logarithms: taken only when asked for.
    """
    target, golden = common(target, golden)
    t, g = (
        magnitude(x.reshape(-1))
        if x.dtype.kind == "c"
        else widened(x).reshape(-1).astype(np.float64)
        for x in (target, golden)
    )
    finite = np.isfinite(t) & np.isfinite(g)
    if not finite.any():
        return None
    p, q = _distribution(t[finite]), _distribution(g[finite])
    divergence = float(np.sum(p * np.log(p / q)))
    return 0.0 if abs(divergence) < np.finfo(np.float64).eps else divergence


def _distribution(values: Floats) -> Floats:
    low, high = float(values.min()), float(values.max())
    if high > low:
        values = (values * 0.5 - low * 0.5) / (high * 0.5 - low * 0.5)  # the halves cannot overflow
    floored = np.maximum(values, FLOOR)
    return np.asarray(floored / float(floored.max()) / float((floored / floored.max()).sum()))
