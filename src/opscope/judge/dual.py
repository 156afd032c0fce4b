# SPDX-License-Identifier: Apache-2.0
"""The dual standard: a target's error against a result of higher precision, beside the golden's own
error against the same.

An operator that loses digits by its nature accuses nobody: only an error that is a multiple of the
trusted side's is one. The four ratios and their thresholds are those of msprobe's accuracy checker
("benchmark" standard, care level L0): share of small values that are off 2, root mean square error
2, largest relative error 10, mean relative error 2. Small values are those below 2**-10 (16-bit
types) or 2**-20 of the reference's root mean square; they have no part in relative errors. The
denominators are at least the type's least error: 2**-11 float16, 2**-8 bfloat16, 2**-14 float32.
Unlike there, root mean square errors are relative to the reference's own, so that the least error
hides nothing in a small tensor.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import UsageError
from opscope.judge.agreement import AGREE, DIFFER, EQUAL, Agreement
from opscope.narrow import name_of, widened

RATIOS = (2.0, 2.0, 10.0, 2.0)
NAMES = (
    "share of small values that are off",
    "root mean square error",
    "largest relative error",
    "mean relative error",
)
# Of a type: which share of the reference's root mean square is small, how far a small value may be
# off, the least error.
_TYPES = {
    "float16": (2.0**-10, 2.0**-16, 2.0**-11),
    "bfloat16": (2.0**-10, 2.0**-16, 2.0**-8),
    "float32": (2.0**-20, 2.0**-30, 2.0**-14),
}
_OTHER = (2.0**-20, 2.0**-30, 2.0**-14)
_WIDE = (2.0**-40, 2.0**-60, 2.0**-43)


class Errors(msgspec.Struct, frozen=True):
    """Errors of one side against the reference, in the order of NAMES; odd counts elements that are
    NaN or infinite on one side alone.
    """

    small: float
    rmse: float
    max_relative: float
    mean_relative: float
    odd: int

    @property
    def all(self) -> tuple[float, float, float, float]:
        """The four numbers."""
        return self.small, self.rmse, self.max_relative, self.mean_relative


def errors_of(side: Array, reference: Array, dtype: str) -> Errors:
    """Answers the errors of one side against the reference; raises UsageError for shapes that
    differ.
    """
    if side.shape != reference.shape:
        raise UsageError(
            f"shapes {list(side.shape)} and {list(reference.shape)} differ; there is nothing "
            "to compare element by element"
        )
    wide = np.complex128 if "c" in (side.dtype.kind, reference.dtype.kind) else np.float64
    x, r = (widened(each).reshape(-1).astype(wide) for each in (side, reference))
    with np.errstate(all="ignore"):
        finite = np.isfinite(x) & np.isfinite(r)
        odd = int(np.count_nonzero(~finite & ~((x == r) | (np.isnan(x) & np.isnan(r)))))
        gap, size = np.abs(x[finite] - r[finite]), np.abs(r[finite])
        power = math.sqrt(float(np.mean(np.square(size)))) if size.size else 0.0
        share, off, _ = _of(dtype)
        small = size < share * power
        relative = gap[~small] / size[~small] if power else np.zeros(0)
        return Errors(
            float(np.mean(gap[small] > off * power)) if small.any() else 0.0,
            math.sqrt(float(np.mean(np.square(gap)))) / power
            if power
            else (math.inf if gap.any() else 0.0),
            float(relative.max()) if relative.size else 0.0,
            float(relative.mean()) if relative.size else 0.0,
            odd,
        )


CLEAR = 10.0  # times golden's error, by statistics alone


def _of(dtype: str) -> tuple[float, float, float]:
    return _WIDE if dtype in ("float64", "complex128") else _TYPES.get(dtype, _OTHER)


def dual_standard(
    target: Array, golden: Array, reference: Array, *, dtype: str | None = None
) -> Agreement:
    """Answers whether target errs against the reference no more than golden does, up to the
    ratios allowed.

    reference is a result of higher precision, its errors taken for none. error and allowed are
    those of the ratio that is furthest beyond its threshold. Raises UsageError for shapes that
    differ.
    """
    name = dtype or name_of(golden.dtype)
    mine, theirs = errors_of(target, reference, name), errors_of(golden, reference, name)
    return judge(mine, theirs, dtype=name)


def dual_by_statistics(mine: float, theirs: float, *, dtype: str) -> Agreement:
    """The same from the relative errors against the reference that statistics alone prove: one
    error beside another, as largest ones are.

    Both may be larger than that, so that only a clear multiple is a difference.
    """
    ratio = mine / max(theirs, _of(dtype)[2])
    words = (
        f"by statistics alone, it is at least {mine:.3g} of the scale from the reference, "
        f"golden {theirs:.3g}"
    )
    if ratio > CLEAR:
        return Agreement(
            verdict=DIFFER,
            error=ratio,
            allowed=CLEAR,
            words=f"{words}; {CLEAR:g} times is allowed",
        )
    return Agreement(verdict=AGREE if mine else EQUAL, error=ratio, allowed=CLEAR, words=words)


def judge(mine: Errors, theirs: Errors, *, dtype: str) -> Agreement:
    """The verdict from the errors of target and golden."""
    if mine.odd > theirs.odd:
        words = (
            f"{mine.odd} elements are NaN or infinite where the reference is not, or the "
            f"other way; {theirs.odd} in golden"
        )
        return Agreement(verdict=DIFFER, error=math.inf, allowed=0.0, words=words)
    if not any(mine.all):
        return Agreement(verdict=EQUAL, error=0.0, allowed=0.0, words="target is the reference")
    least = _of(dtype)[2]
    ratios = [one / max(other, least) for one, other in zip(mine.all, theirs.all, strict=True)]
    excess = [ratio / bound for ratio, bound in zip(ratios, RATIOS, strict=True)]
    worst = max(range(len(excess)), key=excess.__getitem__)
    words = (
        f"{NAMES[worst]} against the reference is {mine.all[worst]:.3g}, golden's "
        f"{theirs.all[worst]:.3g}"
    )
    verdict = DIFFER if excess[worst] > 1 else AGREE
    bound = f"; {RATIOS[worst]:g} times is allowed" if verdict == DIFFER else ""
    return Agreement(
        verdict=verdict, error=ratios[worst], allowed=RATIOS[worst], words=words + bound
    )
