# SPDX-License-Identifier: Apache-2.0
"""What a difference looks like, in words: one explanation of the whole difference, applied and
found true, or none.

An explanation is a change of golden that gives target (sign, factor, offset, rounding, another
order of its elements, a missing bias, …) or a place outside of which both sides agree
(judge.mismatch_places). Each is carried out, and what it leaves must be within rounding everywhere;
what explains only a part is not said. The simplest that holds is answered.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opscope.arrays import Array, Ints
from opscope.judge.mismatch_places import place_of
from opscope.judge.mismatch_values import (
    FEWEST,
    SIMPLE,
    Explanation,
    Sides,
    probes,
    said,
    unlike,
)
from opscope.narrow import is_narrow, limits, widened

LARGEST = 1 << 24  # elements; larger arrays are not searched


def explain(
    target: Array,
    golden: Array,
    *,
    others: Mapping[str, Array] | None = None,
) -> Explanation | None:
    """Answers what turns golden into target, or where they differ, where one explanation is the
    whole difference; else None.

    A few roundings of the coarser type are no difference. others are further tensors of the call by
    name, such as its bias. Arrays of more than 2**24 elements are not searched.
    """
    if target.size != golden.size or not 1 < golden.size <= LARGEST:
        return None
    absolute, relative = roundings(target, golden)
    wide = np.complex128 if "c" in (target.dtype.kind, golden.dtype.kind) else np.float64
    with np.errstate(all="ignore"):
        t, g = widened(target).astype(wide), widened(golden).astype(wide)
        if t.shape != g.shape:
            return _reordered(Sides(t, g, absolute, relative, np.ones(t.shape, np.bool_)))
        wrong = unlike(t, g, absolute, relative)
        if not wrong.any():
            return None
        sides = Sides(t, g, absolute, relative, wrong)
        for rule in _RULES:
            explanation = rule(sides)
            if explanation is not None:
                return explanation
        return _missing(sides, others or {}) or place_of(sides) or _along(sides)


def roundings(target: Array, golden: Array) -> tuple[float, float]:
    """(absolute, relative) of a few roundings of the coarser of two types, beside the largest
    finite element of golden.
    """
    unit = max(
        limits(side.dtype).eps if _floating(side.dtype) else 0.0 for side in (target, golden)
    )
    share = unit * (64 if unit < 1e-4 else 2)
    golden = widened(golden)
    finite = (
        np.abs(
            golden[np.isfinite(golden)].astype(
                np.complex128 if golden.dtype.kind == "c" else np.float64
            )
        )
        if unit
        else np.zeros(0)
    )
    return share * float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0, share


def _floating(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "fc" or is_narrow(dtype)


def _clipped(sides: Sides) -> Explanation | None:
    if (
        sides.golden.dtype.kind == "c"
        or np.isnan(sides.target).any()
        or np.isnan(sides.golden).any()
    ):
        return None
    low, high = float(sides.target.min()), float(sides.target.max())
    if (
        low == high
        or sides.wrong.sum() < 2
        or sides.wrong.all()
        or not sides.same(np.clip(sides.golden, low, high))
    ):
        return None
    over, under = (
        sides.golden.max() > high + sides.absolute,
        sides.golden.min() < low - sides.absolute,
    )
    if over and under:
        return Explanation("clipped", f"target is golden held between {said(low)} and {said(high)}")
    return Explanation(
        "clipped",
        f"target is golden held {'at most' if over else 'at least'} {said(high if over else low)}",
    )


def _along(sides: Sides) -> Explanation | None:
    """A vector along one dimension, added or multiplied: a bias, a scale of channels."""
    shape = sides.golden.shape
    for axis in range(len(shape)) if len(shape) > 1 else ():
        rest = tuple(other for other in range(len(shape)) if other != axis)
        if sides.golden.size // max(1, shape[axis]) < FEWEST or shape[axis] < 2:
            continue
        added = np.mean(sides.target - sides.golden, axis=rest, keepdims=True)
        if np.isfinite(added).all() and sides.same(sides.golden + added):
            return Explanation(
                "vector",
                f"target is golden plus a vector along dimension {axis}, as when a bias is "
                "missing, doubled or other",
            )
        power = np.sum(np.square(np.abs(sides.golden)), axis=rest, keepdims=True)
        factor = np.sum(sides.target * np.conj(sides.golden), axis=rest, keepdims=True) / np.where(
            power == 0, 1, power
        )
        if np.isfinite(factor).all() and sides.same(sides.golden * factor):
            return Explanation(
                "scales",
                f"target is golden times a vector along dimension {axis}, as when a scale of "
                "channels is other",
            )
    return None


def _missing(sides: Sides, others: Mapping[str, Array]) -> Explanation | None:
    """Another tensor of the call that was left out, or taken twice."""
    for name, other in others.items():
        try:
            value = np.broadcast_to(widened(other).astype(sides.golden.dtype), sides.golden.shape)
        except ValueError:
            continue
        for sign, words in ((-1, "without"), (1, "with twice")):
            if np.any(value) and sides.same(sides.golden + sign * value):
                return Explanation("missing", f"target is golden {words} {name}")
    return None


def _reordered(sides: Sides) -> Explanation | None:
    """The same elements with dimensions exchanged, or read as if they were."""
    golden, shape = sides.golden, sides.target.shape
    if np.unique(golden.reshape(-1)[:4096]).size < FEWEST:
        return None
    for order in itertools.permutations(range(golden.ndim)) if 2 <= golden.ndim <= 5 else ():
        turned = golden.transpose(order)
        if order != tuple(range(golden.ndim)) and turned.shape == shape and sides.same(turned):
            return Explanation(
                "transposed", f"target is golden with its dimensions in the order {list(order)}"
            )
    for order in itertools.permutations(range(golden.ndim)) if 2 <= golden.ndim <= 5 else ():
        turned = golden.transpose(order)
        places = probes(golden.size)
        first = turned[np.unravel_index(places, turned.shape)]
        if unlike(sides.target.reshape(-1)[places], first, sides.absolute, sides.relative).any():
            continue
        if sides.same(turned.reshape(shape)):
            words = (
                f"target holds golden's elements with dimensions in the order {list(order)}, "
                "as when a layout is misread"
            )
            same = order == tuple(range(golden.ndim))
            return (
                Explanation("reshaped", f"target is golden in another shape, {list(shape)}")
                if same
                else Explanation("layout", words)
            )
    return None


def _permuted(sides: Sides) -> Explanation | None:
    """Slices of one dimension in another order: shifted, reversed, halves exchanged, heads or
    channels mixed up.
    """
    shape = sides.golden.shape
    for axis, length in enumerate(shape):
        if not 2 <= length <= 1 << 16 or np.unique(sides.golden.reshape(-1)[:4096]).size < FEWEST:
            continue
        order = _order(sides, axis)
        if order is not None and sides.same(np.take(sides.golden, order, axis=axis)):
            return Explanation("permuted", f"target is golden with {order_words(order, axis)}")
    return _shifted(sides)


def _order(sides: Sides, axis: int) -> Ints | None:
    """For each slice of target the slice of golden that has the same fingerprint; None where they
    are not the same set.
    """
    length = sides.golden.shape[axis]
    weights = np.random.default_rng(0).uniform(1, 2, sides.golden.size // length)
    prints = [
        np.nan_to_num(np.moveaxis(side, axis, 0).reshape(length, -1).real) @ weights
        for side in (sides.target, sides.golden)
    ]
    order_t, order_g = (np.argsort(one, kind="stable") for one in prints)
    slack = (sides.absolute + sides.relative * np.abs(prints[1]).max(initial=0.0)) * weights.size
    if not np.allclose(prints[0][order_t], prints[1][order_g], rtol=0.0, atol=slack + 1e-300):
        return None
    order = np.empty(length, np.int64)
    order[order_t] = order_g
    return None if (order == np.arange(length)).all() else order


def order_words(order: Ints, axis: int) -> str:
    """How slices are ordered, in words; order[i] is the slice of golden that stands at i in
    target.
    """
    length, where = len(order), f"along dimension {axis}"
    numbers = np.arange(length)
    shift = int((numbers - order)[0]) % length
    if ((numbers - order) % length == shift).all():
        half = " (halves exchanged)" if 2 * shift == length else ""
        return f"slices {where} rolled by {shift if 2 * shift <= length else shift - length}{half}"
    if (order == numbers[::-1]).all():
        return f"slices {where} in reverse order"
    if length % 2 == 0:
        woven = np.stack([numbers[: length // 2], numbers[length // 2 :]], axis=1).reshape(-1)
        if (order == woven).all():
            return f"slices {where} interleaved by halves"
        if (order == np.argsort(woven)).all():
            return f"slices {where} parted into even and odd ones"
    for size in (size for size in range(length // 2, 1, -1) if length % size == 0):
        blocks = order.reshape(-1, size)
        if (blocks == blocks[:, :1] + np.arange(size)).all() and not (blocks[:, 0] % size).any():
            return order_words(blocks[:, 0] // size, axis).replace(
                "slices", f"blocks of {size} slices", 1
            )
    moved = np.flatnonzero(order != numbers)
    if moved.size == 2:
        return f"slices {where}: {int(moved[0])} and {int(moved[1])} exchanged"
    return f"slices {where} in another order, {moved.size} of {length}"


def _shifted(sides: Sides) -> Explanation | None:
    """Shifted by a few places along one dimension, other elements coming in at the edge."""
    shape = sides.golden.shape
    for axis, shift in itertools.product(range(len(shape)), (1, -1, 2, -2, 3, -3, 4, -4)):
        length = shape[axis] - abs(shift)
        if length < FEWEST or length < abs(shift):
            continue
        ahead = slice(abs(shift), None) if shift > 0 else slice(None, -abs(shift))
        behind = slice(None, -abs(shift)) if shift > 0 else slice(abs(shift), None)
        t = np.moveaxis(sides.target, axis, 0)[ahead]
        g = np.moveaxis(sides.golden, axis, 0)[behind]
        if sides.same(g, t) and np.unique(g.reshape(-1)[:4096]).size >= FEWEST:
            return Explanation(
                "shifted", f"target is golden shifted by {shift} along dimension {axis}"
            )
    return None


_RULES: tuple[Callable[[Sides], Explanation | None], ...] = (
    *SIMPLE,
    _clipped,
    _reordered,
    _permuted,
)
