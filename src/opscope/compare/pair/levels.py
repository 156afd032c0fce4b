# SPDX-License-Identifier: Apache-2.0
"""Runs that were recorded at other levels: one knows modules, another APIs, a third operators.

Where both know modules, a side's calls of a level that the other did not record are left to the
side: they neither count as leaves nor as calls that only one side runs, and modules speak for what
runs inside them. Where no level is shared, or one side's leaves are APIs and the other's operators,
the two are compared as two frameworks are (across_frameworks.py): by what calls compute and what
came out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.side.columns import API, MODULE, OPERATOR, Side
from opscope.run.hashes import distinct
from opscope.run.keys import NONE, keys_of

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints

LEVEL_WORDS = {MODULE: "modules", API: "APIs", OPERATOR: "operators"}


def other_leaves(target: Side, golden: Side) -> bool:
    """Whether the leaves of two runs are of different levels and modules cannot speak for them."""
    levels = _leaf_level(target), _leaf_level(golden)
    if NONE in levels or levels[0] == levels[1]:
        return False
    return not (
        MODULE in levels and all((side.calls.level == MODULE).any() for side in (target, golden))
    )


def _leaf_level(side: Side) -> int:
    """The level that most calls without a call inside them are of; NONE for a run without calls."""
    levels = side.calls.level[side.calls.leaf]
    return int(np.bincount(levels).argmax()) if len(levels) else NONE


def at_common_levels(target: Side, golden: Side) -> tuple[Side, Side]:
    """Both sides with leaves among the calls of levels that both recorded; the sides as they are
    where they share all levels or none.
    """
    if not len(
        np.intersect1d(
            distinct(target.calls.level), distinct(golden.calls.level), assume_unique=True
        )
    ):
        return target, golden
    return _within(target, recorded(target, golden)), _within(golden, recorded(golden, target))


def recorded(side: Side, other: Side) -> Bools:
    """Which calls of a side are of a level that the other recorded, in the phase of the call where
    it knows the phase at all.
    """
    calls, partner = side.calls, other.calls
    both = [
        table.phase * np.uint64(len(LEVEL_WORDS)) + table.level.astype(np.uint64)
        for table in (calls, partner)
    ]
    known = distinct(both[1])
    if np.array_equal(distinct(both[0]), known):
        return np.ones(len(calls), dtype=np.bool_)
    level = np.isin(calls.level, distinct(partner.level))
    phase = np.isin(calls.phase, distinct(partner.phase))
    return level & (~phase | np.isin(both[0], known))


def _within(side: Side, wanted: Bools) -> Side:
    calls = side.calls
    if wanted.all():
        return side
    parents = side.enclosing(wanted)
    leaf = wanted.copy()
    leaf[parents[wanted & (parents >= 0)]] = False
    leaf &= calls.leaf | ~_has_inner(side, calls.leaf)
    leaf |= wanted & calls.leaf & side.graphs()  # of which nothing inside is known
    return msgspec.structs.replace(side, calls=msgspec.structs.replace(calls, leaf=leaf))


def _has_inner(side: Side, leaf: Bools) -> Bools:
    """Calls that are no leaves although no recorded call lies inside them by its parent: told by
    content (without_enclosing).
    """
    return ~leaf & ~_encloses(side)


def _encloses(side: Side) -> Bools:
    """Calls inside which a recorded call lies by its parent."""
    calls = side.calls
    inner = calls.parent >= 0
    return np.isin(calls.key, keys_of(calls.process[inner], calls.parent[inner]))


def within_modules(side: Side) -> Bools:
    """Calls that a module encloses, or the graph that one was compiled to."""
    calls = side.calls
    if not (calls.level == API).any():
        return calls.parent >= 0
    return side.enclosing(calls.level == MODULE) >= 0


def apart(target: Side, golden: Side) -> Ints:
    """Places of the target's calls that golden's levels leave out, with no call inside them and
    inside no call that both recorded.
    """
    shared = recorded(target, golden)
    if shared.all():
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(~shared & ~_encloses(target) & (target.enclosing(shared) < 0))
