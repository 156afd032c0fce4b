# SPDX-License-Identifier: Apache-2.0
"""The manuals' own algorithms for a pair of tensors, each number as msaccucmp writes it: six
decimals, or NaN and a reason.

Definitions are the documented ones, kept where kernels.pair defines an edge otherwise: relative
errors leave out golden elements of at most 2.2e-16, a relative Euclidean distance to a zero golden
is 0. Both sides are compared as float32; booleans have algorithms 0 and 3 alone.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import UsageError
from opscope.narrow import widened

EPS = float(np.finfo(np.float64).eps)
FLOOR = float(np.finfo(np.float32).eps)
NAN = "NaN"
BOOLEAN = (0, 3)


class Answer(msgspec.Struct, frozen=True):
    """The text of one cell, and why it is NaN."""

    text: str
    reason: str = ""


Values = Array


def _number(value: float) -> Answer:
    return Answer(f"{value:.6f}")


def _cosine(m: Values, g: Values) -> Answer:
    if m.size == 1:
        return Answer("1.000000")
    norms = float(np.sqrt(np.sum(np.square(m)))), float(np.sqrt(np.sum(np.square(g))))
    if max(norms) <= EPS:
        return Answer("1.000000")
    for norm, side in zip(norms, ("my output", "the ground truth"), strict=True):
        if norm <= EPS:
            return Answer(NAN, f"[CosineSimilarity] all elements of {side} are 0")
    return _number(min(1.0, float(np.sum((m / norms[0]) * (g / norms[1])))))


def _max_absolute(m: Values, g: Values) -> Answer:
    return _number(float(np.max(np.abs(m - g))))


def _relative(m: Values, g: Values) -> Values:
    """|m / g - 1| where |g| is above 2.2e-16, 0 elsewhere."""
    kept = np.abs(g) > EPS
    return np.asarray(np.where(kept, np.abs(m / np.where(kept, g, 1.0) - 1.0), 0.0))


def _accumulated_relative(m: Values, g: Values) -> Answer:
    return _number(float(np.sum(_relative(m, g))))


def _relative_euclidean(m: Values, g: Values) -> Answer:
    power = float(np.sum(np.square(g)))
    return _number(
        0.0 if np.sqrt(power) <= EPS else float(np.sqrt(np.sum(np.square(m - g)) / power))
    )


def _distribution(values: Values) -> Values:
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / (high - low) if high > low else values
    floored = np.maximum(scaled, FLOOR)
    return np.asarray(floored / floored.sum())


def _divergence(m: Values, g: Values) -> Answer:
    p, q = _distribution(m), _distribution(g)
    divergence = float(np.sum(p * np.log(p / q)))
    return _number(0.0 if abs(divergence) < EPS else divergence)


def _deviations(m: Values, g: Values) -> Answer:
    def small(value: float) -> float:
        return 0.0 if abs(value) < EPS else value

    return Answer(
        ",".join(f"({small(float(np.mean(x))):.3f};{small(float(np.std(x))):.3f})" for x in (m, g))
    )


def _mean_absolute(m: Values, g: Values) -> Answer:
    return _number(float(np.mean(np.abs(m - g))))


def _root_mean_square(m: Values, g: Values) -> Answer:
    return _number(float(np.sqrt(np.mean(np.square(m - g)))))


def _max_relative(m: Values, g: Values) -> Answer:
    return _number(float(np.max(_relative(m, g))))


def _mean_relative(m: Values, g: Values) -> Answer:
    return _number(float(np.mean(_relative(m, g))))


ALGORITHMS: tuple[tuple[str, Callable[[Values, Values], Answer]], ...] = (
    ("CosineSimilarity", _cosine),
    ("MaxAbsoluteError", _max_absolute),
    ("AccumulatedRelativeError", _accumulated_relative),
    ("RelativeEuclideanDistance", _relative_euclidean),
    ("KullbackLeiblerDivergence", _divergence),
    ("StandardDeviation", _deviations),
    ("MeanAbsoluteError", _mean_absolute),
    ("RootMeanSquareError", _root_mean_square),
    ("MaxRelativeError", _max_relative),
    ("MeanRelativeError", _mean_relative),
)
NAMES = tuple(name for name, _ in ALGORITHMS)


def chosen(text: str | None) -> tuple[int, ...]:
    """Which algorithms a comma list of numbers or names, or "all", asks for; all where nothing is
    said. Raises UsageError.
    """
    if text is None or text.strip().lower() in ("", "all"):
        return tuple(range(len(ALGORITHMS)))
    numbers: list[int] = []
    for word in (part.strip() for part in text.replace(";", ",").split(",") if part.strip()):
        number = (
            int(word)
            if word.isascii() and word.isdigit() and len(word) < 4
            else NAMES.index(word)
            if word in NAMES
            else -1
        )
        if not 0 <= number < len(ALGORITHMS):
            raise UsageError(
                f"{word}: no such algorithm; there are 0 to {len(ALGORITHMS) - 1} and "
                f"{', '.join(NAMES)}"
            )
        if number not in numbers:
            numbers.append(number)
    return tuple(sorted(numbers))


def compute(
    mine: Values, golden: Values, which: tuple[int, ...], *, most: int | None = None
) -> list[Answer]:
    """Each algorithm's answer for two arrays, of their first `most` elements where given; sizes
    that differ answer NaN.
    """
    m, g = mine.reshape(-1), golden.reshape(-1)
    if m.size != g.size:
        return _refused(
            which,
            f"[ShapeError] my output has {list(mine.shape)}, the ground truth {list(golden.shape)}",
        )
    if m.size == 0:
        return _refused(which, "no elements to compare")
    if most is not None:
        m, g = m[:most], g[:most]
    boolean = m.dtype.kind == "b" or g.dtype.kind == "b"
    with np.errstate(all="ignore"):
        wide_m, wide_g = (_as_float32(side) for side in (m, g))
        if not np.isfinite(wide_m).all() or not np.isfinite(wide_g).all():
            side = "my output" if not np.isfinite(wide_m).all() else "the ground truth"
            return _refused(which, f"{side} holds NaN or infinity")
        answers = []
        for number in which:
            name, algorithm = ALGORITHMS[number]
            refused = boolean and number not in BOOLEAN
            answers.append(
                Answer(NAN, f"[{name}] not for bool") if refused else algorithm(wide_m, wide_g)
            )
    return answers


def _as_float32(values: Values) -> Values:
    """Rounded to float32 as the documented tool does, then summed in float64; of complex numbers
    the real part.
    """
    return np.asarray(np.real(widened(values)).astype(np.float32).astype(np.float64))


def _refused(which: tuple[int, ...], reason: str) -> list[Answer]:
    return [Answer(NAN, reason if column == 0 else "") for column, _ in enumerate(which)]


def reasons(answers: list[Answer]) -> str:
    """Cell CompareFailReason: every reason, or nothing."""
    return " ".join(answer.reason for answer in answers if answer.reason)
