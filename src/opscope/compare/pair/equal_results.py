# SPDX-License-Identifier: Apache-2.0
"""Calls of two frameworks that compute the same thing and came to the same result: sure pairs,
wherever they stand in their step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from opscope.arrays import Ints, Words
    from opscope.compare.pair.sequences import Pair
    from opscope.compare.side.columns import Side

# of the scale: what rounding makes of statistics that do not depend on the order of elements
_CLOSE = 1e-3
_MANY = 4_000_000
LEAST = 4  # elements; fewer are equal by chance


def equal_results(
    sides: tuple[Side, Side],
    parts: tuple[Words, Words],
    given: Iterable[Pair],
) -> Iterator[Pair]:
    """Calls of one rank, step, phase and operator whose results have the same statistics, where
    only these two do on either side.
    """
    given_calls = [{pair[side] for pair in given} for side in (0, 1)]
    results = [
        _results(side, part, gone)
        for side, part, gone in zip(sides, parts, given_calls, strict=True)
    ]
    for key, left in results[0].items():
        right = results[1].get(key, [])
        if right and len(left) * len(right) <= _MANY:
            yield from _unique(sides, np.array(left), np.array(right))


def _results(side: Side, part: Words, gone: set[int]) -> dict[tuple[int, int, int], list[int]]:
    """First output row of each call that has one with statistics, by part, operator and size."""
    tensors, calls = side.tensors, side.calls
    results: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    rows = np.flatnonzero(
        tensors.output
        & (tensors.size >= LEAST)
        & np.isfinite(tensors.l2norm)
        & (tensors.l2norm > 0)
    )
    if not len(rows):
        return results
    _, first = np.unique(tensors.call[rows], return_index=True)
    for row in rows[first].tolist():
        call = int(tensors.call[row])
        if call not in gone:
            results[int(part[call]), int(calls.op[call]), int(tensors.size[row])].append(row)
    return results


def _unique(sides: tuple[Side, Side], left: Ints, right: Ints) -> Iterator[Pair]:
    mine, theirs = sides[0].tensors, sides[1].tensors
    root = np.sqrt(np.maximum(mine.size[left], 1))[:, None]
    scale = np.fmax(mine.l2norm[left][:, None], theirs.l2norm[right][None, :])
    close = np.abs(mine.l2norm[left][:, None] - theirs.l2norm[right][None, :]) <= _CLOSE * scale
    for name, unit in (("min", scale), ("max", scale), ("mean", scale / root)):
        difference = np.abs(
            getattr(mine, name)[left][:, None] - getattr(theirs, name)[right][None, :]
        )
        close &= ~(difference > _CLOSE * unit)
    alone = close & (close.sum(axis=0) == 1)[None, :] & (close.sum(axis=1) == 1)[:, None]
    for i, j in zip(*np.nonzero(alone), strict=True):
        yield int(mine.call[left[i]]), int(theirs.call[right[j]])
