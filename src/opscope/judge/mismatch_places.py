# SPDX-License-Identifier: Apache-2.0
"""Where two arrays differ, in words, when the place has a shape: rows, columns, slices, a period,
the tail, a triangle.
"""

from __future__ import annotations

import math

import numpy as np

from opscope.arrays import Array, Bools
from opscope.judge.mismatch_values import Explanation, Sides, simple

FILLED = 0.95  # share of a place's elements that differ; a few agree by chance
FEW = 3  # elements that are told one by one
PERIODS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def place_of(sides: Sides) -> Explanation | None:
    """The place outside of which both sides agree and inside of which they differ, and what target
    holds there.
    """
    wrong = sides.wrong
    if wrong.all():
        return None
    count = int(wrong.sum())
    if count <= FEW and wrong.size > 4 * FEW:
        return _lone(sides, count)
    shape = (
        _box(wrong, count)
        or _triangle(wrong, count)
        or _run(wrong.reshape(-1), count)
        or _period(wrong.reshape(-1), count)
    )
    if shape is None:
        return _lone(sides, count)
    kind, words = shape
    return Explanation(
        kind, f"only {words} {'differs' if count == 1 else 'differ'}{_content(sides)}"
    )


def _content(sides: Sides) -> str:
    """What stands in the wrong places, when that is one thing."""
    t, g = sides.target[sides.wrong], sides.golden[sides.wrong]
    if np.isnan(t).all() and not np.isnan(g).any():
        return ": NaN in target"
    if np.isinf(t).all():
        return ": infinite in target"
    if not np.any(t):
        return ": 0 in target"
    part = Sides(t, g, sides.absolute, sides.relative, np.ones(t.shape, np.bool_))
    explanation = next(simple(part), None) if t.size >= 4 else None
    return "" if explanation is None else f", and there {explanation.words}"


def _lone(sides: Sides, count: int) -> Explanation | None:
    """No place with a shape: NaN alone, or very few elements, are told all the same."""
    t, g = sides.target[sides.wrong], sides.golden[sides.wrong]
    if np.isnan(t).all() and not np.isnan(g).any():
        return Explanation(
            "nan",
            f"finite elements agree; {count} of {sides.target.size} elements are NaN in "
            "target alone",
        )
    if np.isnan(g).all() and not np.isnan(t).any():
        return Explanation(
            "nan",
            f"finite elements agree; {count} of {sides.target.size} elements are NaN in "
            "golden alone",
        )
    if not np.any(t):
        return Explanation(
            "zeros", f"{count} of {sides.target.size} elements are 0 in target, all others agree"
        )
    if count <= FEW:
        places = ", ".join(str([int(i) for i in index]) for index in np.argwhere(sides.wrong))
        return Explanation(
            "elements",
            f"only {'element' if count == 1 else 'elements'} {places} of {sides.target.size} "
            f"differ{'s' * (count == 1)}",
        )
    return None


def _box(wrong: Bools, count: int) -> tuple[str, str] | None:
    """A product of index sets, one for each dimension, that the difference fills."""
    sets = [
        np.flatnonzero(wrong.any(axis=tuple(other for other in range(wrong.ndim) if other != axis)))
        for axis in range(wrong.ndim)
    ]
    if count < FILLED * math.prod(len(one) for one in sets):
        return None
    parts = [(axis, one) for axis, one in enumerate(sets) if len(one) < wrong.shape[axis]]
    told = [_indices(one, wrong.shape[axis]) for axis, one in parts]
    if not parts or any(words is None for words in told):
        return None
    names = [
        f"{words} {_axis_words(axis, wrong.ndim)}"
        for (axis, _), words in zip(parts, told, strict=True)
    ]
    tail = (
        len(parts) == 1
        and parts[0][1][-1] == wrong.shape[parts[0][0]] - 1
        and _contiguous(parts[0][1])
    )
    return "tail" if tail else "box", " and ".join(names)


def _axis_words(axis: int, ndim: int) -> str:
    if ndim == 1:
        return "of all elements"
    name = {ndim - 2: "rows", ndim - 1: "columns"}.get(axis, "slices")
    return f"of the {name} (dimension {axis})"


def _contiguous(indices: Array) -> bool:
    return bool(indices[-1] - indices[0] == len(indices) - 1)


def _indices(indices: Array, length: int) -> str | None:
    """A set of indices in words: one, a run, the last ones, every n-th, the same part of every n;
    None where it has no shape.
    """
    first, last, count = int(indices[0]), int(indices[-1]), len(indices)
    if count == 1:
        return f"index {first} of {length}" if first != length - 1 else f"the last of {length}"
    if _contiguous(indices):
        return (
            f"the last {count} of {length}"
            if last == length - 1
            else f"{first} to {last} of {length}"
        )
    repeated = _repeated(indices, length)
    if repeated is not None:
        return repeated
    return f"{', '.join(map(str, indices.tolist()))} of {length}" if count <= 4 else None


def _repeated(indices: Array, length: int) -> str | None:
    """The same part of every n indices: a tile, a lane, a stage of a pipeline."""
    gaps = np.diff(indices)
    for period in sorted(
        {int(indices[-1] - indices[-2]), *(int(gap) for gap in np.unique(gaps)[-3:]), *PERIODS}
    ):
        if not 2 <= period <= length // 2:
            continue
        part = np.unique(indices % period)
        wanted = np.flatnonzero(np.isin(np.arange(length) % period, part))
        if len(part) < period and np.array_equal(wanted, indices):
            if len(part) == 1:
                return (
                    f"every {({2: 'second', 3: 'third'}).get(period, f'{period}th')} from "
                    f"{int(part[0])}, of {length}"
                )
            if _contiguous(part):
                return f"{int(part[0])} to {int(part[-1])} of every {period} of {length}"
    return None


def _triangle(wrong: Bools, count: int) -> tuple[str, str] | None:
    """All above or below a diagonal of the last two dimensions, as a wrong causal mask leaves
    it.
    """
    if wrong.ndim < 2 or min(wrong.shape[-2:]) < 3:
        return None
    rows, columns = np.nonzero(
        wrong.any(axis=tuple(range(wrong.ndim - 2))) if wrong.ndim > 2 else wrong
    )
    height, width = wrong.shape[-2:]
    copies = wrong.size // (height * width)
    for name, edge, mask in (
        ("above", int((columns - rows).min()), np.triu),
        ("below", int((columns - rows).max()), np.tril),
    ):
        size = int(mask(np.ones((height, width), np.bool_), edge).sum())
        if FILLED * size * copies <= count and size < height * width:
            return "triangle", f"what lies on or {name} diagonal {edge} of the last two dimensions"
    return None


def _run(wrong: Bools, count: int) -> tuple[str, str] | None:
    """One run of elements in C order."""
    first, last = int(np.argmax(wrong)), wrong.size - 1 - int(np.argmax(wrong[::-1]))
    if count < 4 or not FILLED * (last - first + 1) <= count or last - first + 1 > 0.9 * wrong.size:
        return None
    if last == wrong.size - 1:
        return "tail", f"the last {last - first + 1} of {wrong.size} elements in C order"
    return "run", f"elements {first} to {last} of {wrong.size} in C order"


def _period(wrong: Bools, count: int) -> tuple[str, str] | None:
    """The same part of every n elements in C order."""
    for period in PERIODS:
        if wrong.size < 4 * period or wrong.size % period:
            continue
        part = np.flatnonzero(wrong.reshape(-1, period).any(axis=0))
        if (
            len(part) < period
            and _contiguous(part)
            and count >= FILLED * len(part) * (wrong.size // period)
        ):
            return (
                "period",
                f"elements {int(part[0])} to {int(part[-1])} of every {period} in C order",
            )
    return None
