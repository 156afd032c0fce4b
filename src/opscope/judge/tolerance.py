# SPDX-License-Identifier: Apache-2.0
"""How far two correct results of one operator may lie apart, from error analysis: per operator,
element type and number of terms.

The bound of one element t beside golden g is

    |t - g|  <=  absolute + scaled * max|golden| + relative * |g|

u is the unit roundoff of a type (2**-24 for float32). Both sides err, so every bound counts twice;
beside a result of higher precision one side errs, and half of it holds (`one_side`: calls that are
made again, judge.replayed, and the scripts of repro).

Sources: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.1 (gamma_n = n u / (1
- n u)) and chapter 4; N. Higham and T. Mary, A New Approach to Probabilistic Rounding Error
Analysis, SIAM J. Sci. Comput. 41 (2019): gamma_n becomes about lambda sqrt(n) u, with lambda 3
here; the CUDA C++ Programming Guide's and SLEEF's tables of ULP errors of elementary functions.
docs/metrics.md has the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from opscope.judge import families
from opscope.operators.catalogue import family, remembered, traits_of
from opscope.run.dtypes import find_dtype

LAMBDA = 3.0
ELEMENTARY = 4  # ULPs that a library's elementary function may err
KEPT = 2.0**-23  # twice the least number of float16: what it holds, no library flushes to zero
# Normal numbers are a radius times the cosine of an angle up to 2 pi: the angle's rounding moves
# those near 0 by pi radii of it, and a library's own cosine by as much again.
BOX_MULLER = 16
ROUNDED = 1  # ULPs that a device's division, root or fused multiply-add may err


# Unit roundoff of products that a kernel makes within itself, in the type of autocast where that is
# on: results do not tell whether.
WITHIN = {"_trilinear": 2.0**-8}

# How a trusted kernel's own error counts: at each element, by its largest, or not beyond the
# rounding of the result.
EACH, LARGEST, ONCE = "each", "largest", "once"
_OWN = {
    "exact": ONCE,
    "cast": ONCE,
    "arithmetic": EACH,
    "elementary": EACH,
    "composed": EACH,
    "optimizer": EACH,
}


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """A bound of one element's difference; judged is False where correct results may differ without
    bound (random numbers, bases).

    absolute is in the unit of the values, relative to the element, scaled to the largest magnitude
    of golden, ulp in steps of the
    type: an element within either the sum of the first three or ulp is within the tolerance. share
    is of the sum of the magnitudes of an element's terms, in place of scaled where that is known of
    each element. own says how a trusted kernel's own error widens the tolerance of a call that is
    made again (judge.replayed). reason says in words where it comes from.
    """

    absolute: float
    relative: float
    ulp: int
    reason: str
    scaled: float = 0.0
    share: float = 0.0
    own: str = LARGEST
    judged: bool = True

    @property
    def exact(self) -> bool:
        """Whether correct results are the same numbers."""
        return self.judged and not (self.absolute or self.relative or self.ulp or self.scaled)

    def allowed(self, largest: float | None) -> tuple[float, float]:
        """(absolute, relative) for a golden of this largest magnitude: what kernels.pair counts
        elements against.
        """
        return self.absolute + self.scaled * (largest or 0.0), self.relative


class Precision(msgspec.Struct, frozen=True):
    """Of one element type: unit roundoff of a result and of the sums it comes from, and the least
    normal number.
    """

    unit: float
    accumulated: float
    least: float


# 16-bit and narrower types are summed in float32 by every library known; complex multiplication
# errs up to sqrt(5) u (Brent et al. 2007).
PRECISIONS = {
    "float64": Precision(2.0**-53, 2.0**-53, 2.0**-1022),
    "float32": Precision(2.0**-24, 2.0**-24, 2.0**-126),
    "float16": Precision(2.0**-11, 2.0**-24, 2.0**-14),
    "bfloat16": Precision(2.0**-8, 2.0**-24, 2.0**-126),
    "float8_e4m3fn": Precision(2.0**-4, 2.0**-24, 2.0**-6),
    "float8_e4m3fnuz": Precision(2.0**-4, 2.0**-24, 2.0**-7),
    "float8_e4m3": Precision(2.0**-4, 2.0**-24, 2.0**-6),
    "float8_e4m3b11fnuz": Precision(2.0**-4, 2.0**-24, 2.0**-10),
    "float8_e5m2": Precision(2.0**-3, 2.0**-24, 2.0**-14),
    "float8_e5m2fnuz": Precision(2.0**-3, 2.0**-24, 2.0**-15),
    "float8_e3m4": Precision(2.0**-5, 2.0**-24, 2.0**-2),
    "hifloat8": Precision(2.0**-2, 2.0**-24, 2.0**-15),
    "complex64": Precision(2.3 * 2.0**-24, 2.3 * 2.0**-24, 2.0**-126),
    "complex128": Precision(2.3 * 2.0**-53, 2.3 * 2.0**-53, 2.0**-1022),
    "complex32": Precision(2.3 * 2.0**-11, 2.3 * 2.0**-24, 2.0**-14),
}
_EXACT = Tolerance(absolute=0.0, relative=0.0, ulp=0, reason="the same numbers on every device")


def precision_of(dtype: str) -> Precision | None:
    """Precision of an element type by any of its names; None for integers, booleans and text, which
    are exact.
    """
    known = find_dtype(dtype)
    return PRECISIONS.get(known.name) if known is not None else None


def gamma(terms: int, unit: float) -> float:
    """Relative bound of a sum of that many rounded terms: the smaller of Higham's gamma_n and
    Higham and Mary's lambda sqrt(n) u.
    """
    worst = terms * unit / (1 - terms * unit) if terms * unit < 0.5 else math.inf
    return min(worst, LAMBDA * math.sqrt(terms) * unit)


@remembered(65536)
def tolerance_of(
    op: str, dtype: str, *, terms: int = 1, magnitude: float | None = None
) -> Tolerance:
    """Answers how far two correct results of an operator may lie apart.

    op is its name in any world (judge.operators.family), dtype that of the result. terms is how
    many terms one element of the
    result sums up: inner dimension of a product, elements that a reduction, norm or softmax runs
    over (judge.terms.terms_of). magnitude bounds the sum of the terms' magnitudes, sum|a||b| of a
    product; without it the largest element of golden and sqrt(terms) stand in, which is what terms
    of random sign come to.
    """
    precision = precision_of(dtype)
    if precision is None:
        return _EXACT
    name = family(op)
    kind = families.tolerance_kind(op)
    return _RULES[kind](Case(name, precision, max(1, terms), magnitude, families.unjudged_kind(op)))


@remembered(65536)
def one_side(
    op: str, dtype: str, *, terms: int = 1, accumulation: float | None = None
) -> Tolerance:
    """Answers how far one correct result may lie from the true one: half of what two may differ by.

    accumulation is the unit roundoff in which a program allows its products to be made (2**-11 for
    TF32), None for that of the type. Random numbers drawn from one state, and solutions beside a
    trusted kernel's own, are judged as of an unknown operator.
    """
    precision = precision_of(dtype)
    if precision is None:
        return _EXACT
    name = family(op)
    kind = families.tolerance_kind(op)
    unjudged = families.unjudged_kind(op)
    if unjudged in ("random", "conditioning"):
        kind = "unknown"
    if name in WITHIN and precision.unit < WITHIN[name]:
        accumulation = WITHIN[name]
    if accumulation is not None and kind in ("product", "attention", "unknown"):
        precision = Precision(
            max(precision.unit, accumulation),
            max(precision.accumulated, accumulation),
            precision.least,
        )
    both = _RULES[kind](Case(name, precision, max(1, terms), None, unjudged))
    if traits_of(op).one_sign:  # the result itself is the sum of its terms' magnitudes
        both = msgspec.structs.replace(both, scaled=both.share)
    return msgspec.structs.replace(
        both,
        absolute=min(both.absolute, KEPT) if both.judged else both.absolute,
        relative=both.relative / 2,
        ulp=both.ulp // 2,
        scaled=max(
            both.scaled / 2, BOX_MULLER * precision.accumulated if unjudged == "random" else 0.0
        ),
        share=both.share / 2,
        own=_OWN.get(kind, LARGEST),
    )


class Case(msgspec.Struct, frozen=True):
    """What a rule is asked: the operator's family, the precision of its result, terms and magnitude
    as in tolerance_of, why it is not judged (families.UNJUDGED).
    """

    name: str
    precision: Precision
    terms: int
    magnitude: float | None
    unjudged: str = ""

    def summed(self, words: str, *, factor: float = 1.0) -> Tolerance:
        """Bound of a sum: gamma of the accumulation times the terms' magnitude, beside the rounding
        of the result.
        """
        share = 2 * factor * gamma(self.terms, self.precision.accumulated)
        scaled = share * math.sqrt(self.terms) / (1.0 if self.magnitude is None else 8.0)
        known = (
            ""
            if self.magnitude is not None
            else ", their magnitude taken as sqrt(terms) times the largest result"
        )
        return Tolerance(
            absolute=self.precision.least + share * (self.magnitude or 0.0),
            relative=4 * self.precision.unit,
            ulp=1,
            scaled=scaled,
            share=share,
            reason=f"{words} of {self.terms} terms{known}",
        )

    def pointwise(self, words: str, *, ulp: int, scaled: float = 0.0) -> Tolerance:
        """Bound of a function of each element: ULPs of each side, and a share of the scale where
        terms can cancel.
        """
        unit = self.precision.unit
        relative = 4 * ulp * unit
        return Tolerance(
            absolute=self.precision.least,
            relative=relative,
            ulp=2 * ulp,
            scaled=scaled * unit,
            share=relative,
            reason=words,
        )


def _exact(case: Case) -> Tolerance:
    return msgspec.structs.replace(
        _EXACT, reason=f"{case.name} moves or compares numbers: the same on every device"
    )


def _cast(case: Case) -> Tolerance:
    unit = case.precision.unit
    return Tolerance(
        absolute=0.0, relative=2 * unit, ulp=1, reason="one rounding to the type of the result"
    )


def _arithmetic(case: Case) -> Tolerance:
    return case.pointwise("one or two roundings of each element", ulp=ROUNDED, scaled=2)


def _elementary(case: Case) -> Tolerance:
    return case.pointwise(
        f"an elementary function, each library within {ELEMENTARY} ULP", ulp=ELEMENTARY, scaled=4
    )


def _composed(case: Case) -> Tolerance:
    return case.pointwise(
        "several roundings of each element, whose terms can cancel", ulp=2 * ELEMENTARY, scaled=8
    )


def _sum(case: Case) -> Tolerance:
    return case.summed("a sum")


def _product(case: Case) -> Tolerance:
    return case.summed("a sum of products")


def _loss(case: Case) -> Tolerance:
    summed = case.summed("a loss: logarithms or powers, and their sum", factor=2)
    return msgspec.structs.replace(
        summed, relative=4 * ELEMENTARY * case.precision.unit, ulp=ELEMENTARY
    )


def _softmax(case: Case) -> Tolerance:
    unit, accumulated = case.precision.unit, case.precision.accumulated
    # exp(x - max) of an argument down to -104, which is where float32 ends, errs relatively by that
    # many roundings of the argument.
    share = 2 * (104 * accumulated + gamma(case.terms, accumulated)) + 2 * ELEMENTARY * unit
    scaled = 2 * ELEMENTARY * max(unit, accumulated)
    reason = f"exponentials beside their sum of {case.terms} terms"
    return Tolerance(
        absolute=case.precision.least, relative=share, ulp=ELEMENTARY, scaled=scaled, reason=reason
    )


def _norm(case: Case) -> Tolerance:
    """x - mean cancels: of an x whose mean is 16 times its deviation 4 bits are lost; magnitude is
    max|x| / deviation times the weight.
    """
    unit, accumulated = case.precision.unit, case.precision.accumulated
    share = 2 * (gamma(case.terms, accumulated) + 4 * accumulated)
    absolute = case.precision.least + share * (case.magnitude or 0.0)
    scaled = 16 * share if case.magnitude is None else 0.0
    reason = (
        f"a mean and a variance of {case.terms} elements, and what is left when the mean is "
        "taken away"
    )
    return Tolerance(
        absolute=absolute, relative=8 * unit, ulp=4, scaled=scaled + 4 * unit, reason=reason
    )


def _attention(case: Case) -> Tolerance:
    unit, accumulated = case.precision.unit, case.precision.accumulated
    share = 2 * (104 * accumulated + 4 * gamma(case.terms, accumulated)) + 4 * unit
    reason = (
        f"a softmax between two products of {case.terms} terms; its weights may be rounded "
        "to the type of the result"
    )
    return Tolerance(
        absolute=case.precision.least, relative=8 * unit, ulp=4, scaled=share, reason=reason
    )


def _optimizer(case: Case) -> Tolerance:
    return case.pointwise(
        "an optimizer's update: quotients and roots, and their sum with the parameter",
        ulp=2 * ELEMENTARY,
        scaled=4,
    )


def _transform(case: Case) -> Tolerance:
    """Higham 24.1: the relative error of a fast Fourier transform grows with log2(n) u, of its
    norm.
    """
    share = 2 * 8 * math.log2(case.terms + 1) * case.precision.accumulated
    reason = f"a transform of {case.terms} terms"
    return Tolerance(
        absolute=case.precision.least,
        relative=4 * case.precision.unit,
        ulp=2,
        scaled=share,
        reason=reason,
    )


def _unjudged(case: Case) -> Tolerance:
    words = families.UNJUDGED[case.unjudged]
    return Tolerance(absolute=math.inf, relative=math.inf, ulp=0, reason=words, judged=False)


def _unknown(case: Case) -> Tolerance:
    summed = case.summed(
        "no analysis of this operator is known: taken as a sum of products and elementary "
        "functions",
        factor=4,
    )
    return msgspec.structs.replace(
        summed, relative=8 * ELEMENTARY * case.precision.unit, ulp=2 * ELEMENTARY
    )


_RULES: dict[str, Callable[[Case], Tolerance]] = {
    "exact": _exact,
    "cast": _cast,
    "arithmetic": _arithmetic,
    "elementary": _elementary,
    "composed": _composed,
    "sum": _sum,
    "product": _product,
    "loss": _loss,
    "softmax": _softmax,
    "norm": _norm,
    "attention": _attention,
    "optimizer": _optimizer,
    "transform": _transform,
    "unjudged": _unjudged,
    "unknown": _unknown,
}
