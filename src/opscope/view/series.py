# SPDX-License-Identifier: Apache-2.0
"""Ranges of tensors over the steps."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.run.query import filled
from opscope.run.vectors import Vectors, vectors
from opscope.view.columns import Coder, Groups, joined, numbers_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opscope.arrays import Array, Ints
    from opscope.view.all_calls import AllCalls

Points = dict[str, "Array"]  # columns
Series = dict[tuple[Any, ...], list[list[Any]]]  # by name, rank, io and slot
_IO = ("input", "output")
_LOST = ("nan", "pos_inf", "neg_inf")
# Of points that are alike in the first three: what they are together.
_TOGETHER = {
    "whose": np.minimum,
    "operand": np.minimum,
    "first": np.minimum,
    "low": np.fmin,
    "high": np.maximum,
    "low_known": np.logical_or,
    "high_known": np.logical_or,
    "lost": np.add,
}


def series_of(calls: AllCalls, wanted: Ints, points: int) -> Series:
    """Step, least, largest and count of what is not finite of each tensor of the wanted calls
    (sorted keys), over all calls of their names and ranks.

    Steps that lie together are one point, of which there are at most so many.
    """
    here = calls.rows(wanted)
    here = here[here >= 0]
    if not len(here):
        return {}
    names, ranks, steps = calls.texts("name"), calls.numbers("rank"), calls.numbers("step")
    most = int(ranks.max()) + 1
    whose = names.numbers.astype(np.int64) * most + ranks
    alike = np.sort(calls.keys[np.isin(whose, whose[here])])
    slots, parts = Coder("slot"), []
    first = steps - steps % -(-(int(steps.max()) - int(steps.min()) + 1) // points)
    for batch in vectors(calls.run, "tensors"):
        sized = batch.within(alike)
        sized = sized[batch.known("size")[sized]]
        rows = calls.rows(batch.keys[sized])
        operand = slots.numbers(batch, sized) * 2 + batch.are("io", "output")[sized]
        parts.append(_together(_points(whose[rows], operand, first[rows], batch, sized)))
    together = _together({name: joined([part[name] for part in parts]) for name in _TOGETHER})
    series: Series = defaultdict(list)
    for each, operand, *point in zip(*_cells(together), strict=True):
        name, rank = divmod(each, most)
        slot, made = divmod(operand, 2)
        series[names.words[name], rank, _IO[made], slots.words[slot]].append(point)
    return series


def _points(whose: Ints, operand: Ints, first: Ints, batch: Vectors, rows: Ints) -> Points:
    """Rows of tensors as points."""
    low, high = (numbers_at(batch, name, rows) for name in ("min", "max"))
    return {
        "whose": whose,
        "operand": operand,
        "first": first,
        "low": np.ma.filled(low, np.nan),
        "high": np.ma.filled(high, -np.inf),
        "low_known": ~np.ma.getmaskarray(low),
        "high_known": ~np.ma.getmaskarray(high),
        "lost": np.add.reduce([filled(numbers_at(batch, name, rows)) for name in _LOST]),
    }


def _together(points: Points) -> Points:
    groups = Groups(points["whose"], points["operand"], points["first"])
    return {name: groups.merged(how, points[name]) for name, how in _TOGETHER.items()}


def _cells(points: Points) -> Iterator[list[Any]]:
    """Columns as a page has them: whose, operand, first step, least, largest, what is lost."""
    yield from (points[name].tolist() for name in ("whose", "operand", "first"))
    yield from (_short(points[name], points[f"{name}_known"]) for name in ("low", "high"))
    yield points["lost"].tolist()


def _short(values: Array, known: Array) -> list[float | None]:
    """Five digits, a line of a chart shows no more; None where it is not known."""
    return [
        float(f"{value:.5g}") if there else None
        for value, there in zip(values.tolist(), known.tolist(), strict=True)
    ]
