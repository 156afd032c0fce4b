# SPDX-License-Identifier: Apache-2.0
"""Values invented from a tensor's statistics, for inputs whose own values were not kept.

Met exactly: the counts of NaN, infinities, zeros, negative and positive elements, the smallest and
the largest element.
Met as closely as the shape allows: mean and norm. The magnitudes of one sign are its extremes and,
between them, lo + (hi - lo) s u^a with u spread evenly over (0, 1); s and a follow from mean and
mean square (E u^a = 1/(a+1)). Positions are random. A row gives the same values on every machine.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

import msgspec

from opscope.errors import FormatError, MissingValueError
from opscope.run.dtypes import DType, dtype_of

if TYPE_CHECKING:
    from opscope.arrays import Array
    from opscope.run.schema import Tensor


class Counts(msgspec.Struct, frozen=True):
    """How many elements are of which sort; together all elements."""

    nan: int
    pos_inf: int
    neg_inf: int
    zero: int
    neg: int
    pos: int


class Group(msgspec.Struct, frozen=True):
    """The magnitudes of the elements of one sign: how many, between which two; both_ends: lo itself
    must occur.
    """

    count: int
    lo: float
    hi: float
    both_ends: bool

    def values(self, mean: float | None, square: float | None) -> Array:
        """Magnitudes, the largest last, with this mean and mean square as near as may be; evenly
        spread without them.
        """
        import numpy as np

        ends = 1 + self.both_ends
        if self.count <= ends or self.hi <= self.lo:
            return np.array([self.lo] * (self.count - 1) + [self.hi] * min(self.count, 1))
        scale, exponent = self._shape(mean, square, self.count - ends, ends)
        u = (np.arange(self.count - ends) + 0.5) / (self.count - ends)
        v = np.concatenate([np.zeros(ends - 1), scale * u**exponent, np.ones(1)])
        return np.clip(self.lo + (self.hi - self.lo) * v, self.lo, self.hi)

    def _shape(
        self, mean: float | None, square: float | None, inner: int, ends: int
    ) -> tuple[float, float]:
        """s and a of the elements between the extremes, whose own share of the moments is taken off
        first.
        """
        if mean is None or square is None:
            return 1.0, 1.0
        wide = self.hi - self.lo
        first = ((mean - self.lo) / wide * (inner + ends) - 1) / inner
        second = ((square - 2 * self.lo * mean + self.lo**2) / wide**2 * (inner + ends) - 1) / inner
        if first <= 0:
            return 0.0, 1.0
        ratio = max(1.0, second / first**2)
        exponent = ratio - 1 + math.sqrt(ratio * (ratio - 1))  # (a + 1)^2 / (2a + 1) = ratio
        scale = first * (exponent + 1)
        return (scale, exponent) if scale <= 1 else (1.0, max(0.0, 1 / first - 1))


def synthesise(row: Tensor, size: int) -> tuple[Array, bool]:
    """size elements in one dimension in the row's type, and whether the statistics leave no choice
    but these.

    MissingValueError without statistics, FormatError (naming the slot) for statistics that
    contradict each other.
    """
    import numpy as np

    from opscope.narrow import as_type

    dtype = dtype_of(row.dtype)
    if row.size is None or row.nan is None:
        raise MissingValueError(
            f"input {row.slot}: neither its values nor its statistics were kept; record again "
            "with --values full"
        )
    counts = _counts(row, size)
    random = np.random.default_rng(
        zlib.crc32(f"{row.slot} {row.dtype} {row.shape} {row.digest}".encode())
    )
    values = _elements(row, dtype, counts)
    if dtype.kind == "complex":  # statistics are of the magnitude: turn it by any angle
        with np.errstate(invalid="ignore"):
            values = values * np.exp(2j * np.pi * random.random(size))
    with np.errstate(over="ignore", invalid="ignore"):
        made = as_type(random.permutation(values), dtype.to_numpy())
    if not _determined(row, counts, dtype):
        return made, False
    return _checked(made, row.digest if row.size == size else None)


def _counts(row: Tensor, size: int) -> Counts:
    """The counts for size elements; an expanded tensor counts each of its elements several
    times.
    """
    nan, above, below = row.nan or 0, row.pos_inf or 0, row.neg_inf or 0
    zero, neg, pos, total = row.zero or 0, row.neg or 0, row.pos or 0, row.size or 0
    if row.zero is None and row.neg is None and row.pos is None:
        neg, pos, zero = _signs(row, size - nan - above - below)
        total = size
    if zero + neg + pos == total - nan:  # the infinities were counted by their sign too
        neg, pos = neg - below, pos - above
    given = (nan, above, below, zero, neg, pos)
    repeats = total // size if size else 1
    if (
        min(given) < 0
        or sum(given) != total
        or repeats * size != total
        or any(count % repeats for count in given)
    ):
        reason = (
            f"the statistics of input {row.slot} contradict each other: {total} elements in "
            f"{size} places, counts {given}"
        )
        raise FormatError(
            "tensors", reason + "; take another call or record again with --values full"
        )
    return Counts(*(count // repeats for count in given))


def _signs(row: Tensor, finite: int) -> tuple[int, int, int]:
    """How many elements are negative, positive and zero, where only extremes and mean were kept: as
    the mean divides the range.
    """
    low, high = (
        (row.min, row.max)
        if row.min is not None and row.max is not None
        else (row.min_int, row.max_int)
    )
    if low is None or high is None or finite <= 0:
        return 0, 0, max(finite, 0)
    if low == high == 0:
        return 0, 0, finite
    if low >= 0:
        zero = 1 if low == 0 else 0
        return 0, finite - zero, zero
    if high <= 0:
        zero = 1 if high == 0 else 0
        return finite - zero, 0, zero
    mean = row.mean if row.mean is not None and low < row.mean < high else (low + high) / 2
    above = (
        min(max(round(finite * (mean - low) / (high - low)), 1), finite - 1)
        if finite > 1
        else finite
    )
    return finite - above, above, 0


def _elements(row: Tensor, dtype: DType, counts: Counts) -> Array:
    import numpy as np

    if dtype.kind == "bool":
        return np.repeat([False, True], [counts.zero, counts.neg + counts.pos])
    whole = dtype.kind in {"int", "uint"}
    low, high = (row.min_int, row.max_int) if whole else (row.min, row.max)
    if counts.zero + counts.neg + counts.pos and (low is None or high is None):
        raise MissingValueError(
            f"input {row.slot}: its range was not recorded; record again with --values full"
        )
    low, high = low or 0, high or 0
    least = 1.0 if whole else _smallest(dtype)
    above = Group(counts.pos, max(float(low), least), max(float(high), least), low > 0)
    below = Group(counts.neg, max(-float(high), least), max(-float(low), least), high < 0)
    of_above, of_below = _moments(row, counts)
    positive, negative = above.values(*of_above), below.values(*of_below)
    if whole:
        parts = (
            _whole(positive, max(low, 1), high, known=low > 0),
            _whole(-negative, min(high, -1), low, known=high < 0),
        )
        return np.concatenate([*parts, np.zeros(counts.zero, np.int64)])
    special = (
        (math.nan, counts.nan),
        (math.inf, counts.pos_inf),
        (-math.inf, counts.neg_inf),
        (0.0, counts.zero),
    )
    return np.concatenate(
        [positive, -negative, *(np.full(count, value) for value, count in special)]
    )


def _whole(values: Array, near: float, far: float, *, known: bool) -> Array:
    """Values of one sign as integers from near to far, which is the last; known: near occurs too.
    float64 does not hold every int64.
    """
    import numpy as np

    numbers: Array = np.rint(np.clip(values, -(2.0**62), 2.0**62)).astype(np.int64)
    if numbers.size:
        numbers = np.clip(numbers, min(near, far), max(near, far))
        numbers[0] = near if known else numbers[0]
        numbers[-1] = far
    return numbers


def _smallest(dtype: DType) -> float:
    """Smallest positive number of a floating type (of the parts, for a complex one)."""
    from opscope import narrow

    name = {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.numpy)
    return narrow.limits(narrow.numpy_type(str(name))).smallest


Moments = tuple[float | None, float | None]


def _moments(row: Tensor, counts: Counts) -> tuple[Moments, Moments]:
    """Mean and mean square of the magnitudes of the positive and of the negative elements.

    One sign alone takes all of the sum and of the squares. Where there are both, their shares are
    not known: the ratio of mean square to squared mean is taken to be the same, as near to the
    normal distribution's pi/2 as the sums allow.
    """
    finite, elements = counts.zero + counts.neg + counts.pos, sum(msgspec.structs.astuple(counts))
    unknown = ((None, None), (None, None))
    if (
        row.mean is None
        or row.l2norm is None
        or not math.isfinite(row.mean)
        or not math.isfinite(row.l2norm)
        or not finite
    ):
        return unknown
    total, squares = row.mean * finite, row.l2norm**2 * elements / (row.size or elements)
    if not counts.neg or not counts.pos:
        count = max(counts.neg + counts.pos, 1)
        alone = (abs(total) / count, squares / count)
        return alone, alone
    p, q = counts.pos, counts.neg
    for ratio in (math.pi / 2, 1.3, 2.0, 1.1, 3.0, 1.03, 5.0, 1.01, 10.0, 1.0, 30.0, 100.0, 1000.0):
        # p m - q n = total and ratio (p m^2 + q n^2) = squares, solved for m > 0.
        a, b, c = p + p * p / q, -2 * p * total / q, total * total / q - squares / ratio
        if b * b >= 4 * a * c:
            m = (-b + math.sqrt(b * b - 4 * a * c)) / (2 * a)
            n = (p * m - total) / q
            if m > 0 and n > 0:
                return (m, ratio * m * m), (n, ratio * n * n)
    return unknown


def _checked(made: Array, digest: int | None) -> tuple[Array, bool]:
    """Elements that are all the same, with the sign of zero that the recorded digest tells where
    there is one.
    """
    from opscope.kernels import reference
    from opscope.narrow import as_type, widened

    wide = widened(made)
    zeros = made.dtype.kind not in "bu" and not wide.any()
    candidates = [made, as_type(-wide, made.dtype)] if zeros else [made]
    for candidate in candidates:
        if digest is None or reference.digest(candidate) == digest:
            return candidate, True
    return made, False


def _determined(row: Tensor, counts: Counts, dtype: DType) -> bool:
    """Whether only one tensor has these statistics: all its elements are the same."""
    sorts = [counts.nan, counts.pos_inf, counts.neg_inf, counts.zero, counts.neg, counts.pos]
    if sum(map(bool, sorts)) > 1:
        return False
    if not counts.neg and not counts.pos:
        return True
    return dtype.kind == "bool" or (
        dtype.kind != "complex" and row.min == row.max and row.min_int == row.max_int
    )
