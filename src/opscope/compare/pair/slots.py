# SPDX-License-Identifier: Apache-2.0
"""Which tensor of a call is which of its partner in another framework, whose operators take their
operands in another order.

By name, by size in any order of the axes, and by statistics that no order changes; what has no
counterpart is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.side.columns import ABSENT, Side, Tensors
from opscope.compare.side.producers import Flow
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Floats, Ints
    from opscope.compare.pair.alignment import Match
    from opscope.compare.pair.mapping_slots import Fixed

_FAR = 1e9
_FEW, _UNLIKE = (
    8,
    1.0,
    # of more tensors than these (an optimizer's) some are left over: those are no pair for being of
    # one size
)
_MANY = 64  # rows of one side of a call; beyond, only names and equal sizes in order are looked at


def slotted(
    target: tuple[Side, Flow], golden: tuple[Side, Flow], match: Match, fixed: Fixed | None = None
) -> tuple[tuple[Side, Flow], tuple[Side, Flow]]:
    """Both sides with slots that are equal for tensors that belong together; shapes that are one up
    to the order of axes are made equal.

    Contents whose digests differ in what may lie in memory in another order count as not known,
    unless both sides kept the values.
    fixed: what a mapping file says of single tensors.
    """
    mine, theirs = target[0].tensors, golden[0].tensors
    pairs = np.array(list(_pairs(mine, theirs, match, fixed)), dtype=np.int64).reshape(-1, 2)
    slots = [
        np.arange(1, len(side) + 1).astype(np.uint64) * np.uint64(2) + np.uint64(odd)
        for odd, side in enumerate((mine, theirs))
    ]
    slots[1][pairs[:, 1]] = slots[0][pairs[:, 0]]
    shape = theirs.shape.copy()
    reshaped = mine.size[pairs[:, 0]] == theirs.size[pairs[:, 1]]
    shape[pairs[reshaped, 1]] = mine.shape[pairs[reshaped, 0]]
    unknown = ~(mine.kept[pairs[:, 0]] & theirs.kept[pairs[:, 1]]) & (
        target[1].state[pairs[:, 0]] != golden[1].state[pairs[:, 1]]
    )
    whole = golden[1].whole.copy()
    whole[pairs[unknown, 1]] = False
    sides = []
    for (side, flow), slot, changes, number in zip(
        (target, golden), slots, ({}, {"shape": shape}), (match.target, match.golden), strict=True
    ):
        layout = np.zeros(len(slot), dtype=np.uint64)
        tensors = msgspec.structs.replace(side.tensors, slot=slot, stride=layout, **changes)
        paired = np.zeros(len(tensors), dtype=np.bool_)
        paired[pairs[:, 0 if side is target[0] else 1]] = True
        rest = number[tensors.call] < 0 if len(tensors) else paired
        sides.append(
            _selected(
                side,
                tensors,
                flow if side is target[0] else msgspec.structs.replace(flow, whole=whole),
                paired | rest,
            )
        )
    return sides[0], sides[1]


def _selected(side: Side, tensors: Tensors, flow: Flow, wanted: Bools) -> tuple[Side, Flow]:
    """A side with only some rows of its tensors."""
    rows = np.flatnonzero(wanted)
    number = np.full(len(tensors) + 1, NONE)
    number[rows] = np.arange(len(rows))
    columns = {name: getattr(tensors, name)[rows] for name in tensors.__struct_fields__}
    source = flow.source_row[rows]
    moved = np.where(source >= 0, number[np.maximum(source, 0)], NONE)
    chosen = Flow(flow.producer[rows], moved, flow.state[rows], flow.whole[rows])
    places = None if side.places is None else side.places[rows]
    return msgspec.structs.replace(
        side, tensors=msgspec.structs.replace(tensors, **columns), places=places
    ), chosen


def _pairs(
    mine: Tensors, theirs: Tensors, match: Match, fixed: Fixed | None
) -> Iterator[tuple[int, int]]:
    """Rows that belong together, of all matched calls."""
    free = np.ones(len(mine), dtype=np.bool_), np.ones(len(theirs), dtype=np.bool_)
    if fixed is not None:
        yield from map(tuple, fixed.pairs.tolist())
        for flags, given in zip(free, fixed.rows, strict=True):
            flags[given] = False
    starts = [
        np.searchsorted(side.call, np.arange(len(number) + 1))
        for side, number in ((mine, match.target), (theirs, match.golden))
    ]
    for call, partner in match.pairs.tolist():
        left = np.arange(starts[0][call], starts[0][call + 1])
        right = np.arange(starts[1][partner], starts[1][partner + 1])
        left, right = left[free[0][left]], right[free[1][right]]
        for written in (False, True):
            yield from _assigned(
                mine,
                theirs,
                left[mine.output[left] == written],
                right[theirs.output[right] == written],
            )


def _assigned(mine: Tensors, theirs: Tensors, left: Ints, right: Ints) -> list[tuple[int, int]]:
    """The cheapest pairs first, each row once; sizes that nothing fits are paired in order when as
    many are left on either side.
    """
    if not len(left) or not len(right):
        return []
    costs = _costs(mine, theirs, left, right)
    many = min(len(left), len(right)) > _FEW
    pairs: list[tuple[int, int]] = []
    free_left, free_right = set(range(len(left))), set(range(len(right)))
    for flat in np.argsort(costs, axis=None, kind="stable").tolist():
        i, j = divmod(flat, len(right))
        if costs[i, j] >= (_UNLIKE if many else _FAR):
            break
        if i in free_left and j in free_right:
            pairs.append((int(left[i]), int(right[j])))
            free_left.discard(i)
            free_right.discard(j)
    if (len(free_left) == len(free_right) and not many) or (mine.output[left[0]] and not pairs):
        pairs.extend(
            (int(left[i]), int(right[j]))
            for i, j in zip(sorted(free_left), sorted(free_right), strict=False)
        )
    return pairs


def _costs(mine: Tensors, theirs: Tensors, left: Ints, right: Ints) -> Floats:
    """How unlike each two rows are: statistics, less where names agree, more where only the number
    of elements does.
    """
    if len(left) * len(right) > _MANY * _MANY * 64:
        return np.where(mine.named[left][:, None] == theirs.named[right][None, :], 0.0, _FAR)
    cost = np.zeros((len(left), len(right)))
    norm = np.fmax(np.fmax(mine.l2norm[left][:, None], theirs.l2norm[right][None, :]), 1e-30)
    for name, unit in (
        ("l2norm", norm),
        ("min", norm),
        ("max", norm),
        ("mean", norm / np.sqrt(np.maximum(mine.size[left], 1))[:, None]),
    ):
        a, b = getattr(mine, name)[left][:, None], getattr(theirs, name)[right][None, :]
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = np.where(np.isnan(unit), np.fmax(np.fmax(np.abs(a), np.abs(b)), 1e-30), unit)
            cost += np.nan_to_num(np.minimum(np.abs(a - b) / scale, 2.0), nan=0.5)
    named = mine.named[left][:, None] == theirs.named[right][None, :]
    cost -= np.where(named & (mine.named[left][:, None] != 0), 100.0, 0.0)
    cost += np.where(
        mine.sorted_shape[left][:, None] != theirs.sorted_shape[right][None, :], 0.5, 0.0
    )
    exact = [side.min_int[rows] != ABSENT for side, rows in ((mine, left), (theirs, right))]
    cost += np.where(exact[0][:, None] != exact[1][None, :], 4.0, 0.0)
    size = mine.size[left][:, None] != theirs.size[right][None, :]
    return np.where(size & ~(named & (mine.named[left][:, None] != 0)), _FAR, cost)
