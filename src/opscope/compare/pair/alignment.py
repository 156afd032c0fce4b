# SPDX-License-Identifier: Apache-2.0
"""Which call of one run is which call of the other.

Calls are matched by structure: rank and step, then the module tree, then within each module the
sequence of operators, shapes and types. Content, parameter names, producers and readers decide
where structure alone leaves a choice, from the strictest agreement to the loosest; what is left
over is reported as it stands, never guessed. docs/compare.md has the rules.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.pair.sequences import Pair, common
from opscope.run.hashes import distinct, mixed, within_groups
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Ints, Words
    from opscope.compare.side.tokens import Tokens


class Match(msgspec.Struct, frozen=True):
    """For each call of one side the call of the other, NONE where it has none."""

    target: Ints
    golden: Ints

    @property
    def pairs(self) -> Ints:
        """Matched calls, [n, 2], in the order of the target's calls."""
        left = np.flatnonzero(self.target >= 0)
        return np.stack([left, self.target[left]], axis=1)


class _Matching:
    """Pairs found so far."""

    def __init__(self, target: int, golden: int) -> None:
        self.target = np.full(target, NONE, dtype=np.int64)
        self.golden = np.full(golden, NONE, dtype=np.int64)

    def add(self, target: Ints, golden: Ints) -> None:
        self.target[target] = golden
        self.golden[golden] = target

    def left(self) -> tuple[Ints, Ints]:
        return np.flatnonzero(self.target < 0), np.flatnonzero(self.golden < 0)


def align(target: Tokens, golden: Tokens, *, given: Iterable[Pair] = ()) -> Match:
    """Match the calls of two runs; given pairs (a user's mapping) stand whatever they look like."""
    matching = _Matching(len(target.scope), len(golden.scope))
    fixed = np.array(list(given), dtype=np.int64).reshape(-1, 2)
    if not len(fixed) and target.structured_as(golden):
        every = np.arange(len(target.scope))
        return Match(every, every)
    matching.add(fixed[:, 0], fixed[:, 1])
    _pair_equal_groups(target, golden, matching)
    for mine, theirs in _groups(target.scope, golden.scope, *matching.left()):
        _match(target, golden, mine, theirs, matching)
    _pair_renamed(target, golden, matching)
    for mine, theirs in _groups(target.part, golden.part, *matching.left()):
        _match(target, golden, mine, theirs, matching, levels=target.certain)
    return Match(matching.target, matching.golden)


def _pair_equal_groups(target: Tokens, golden: Tokens, matching: _Matching) -> None:
    """Scopes whose whole sequences are equal are matched at once, without looking at single
    calls.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        sorted_sides = list(pool.map(_sorted_scopes, (target, golden), matching.left()))
    (rows_t, names_t, starts_t, sizes_t, sums_t), (rows_g, names_g, starts_g, _, sums_g) = (
        sorted_sides
    )
    _, at_t, at_g = np.intersect1d(names_t, names_g, assume_unique=True, return_indices=True)
    equal = sums_t[at_t] == sums_g[at_g]
    at_t, at_g = at_t[equal], at_g[equal]
    sizes = sizes_t[at_t]
    if not len(sizes):
        return
    inner = within_groups(sizes)
    mine = rows_t[np.repeat(starts_t[at_t], sizes) + inner]
    theirs = rows_g[np.repeat(starts_g[at_g], sizes) + inner]
    sure = _in_step(target, golden, mine, theirs, np.repeat(np.arange(len(sizes)), sizes))
    matching.add(mine[sure], theirs[sure])


def _sorted_scopes(tokens: Tokens, free: Ints) -> tuple[Array, ...]:
    """Calls sorted by scope, the scopes, where each begins, how many calls each has, and a hash of
    its sequence.
    """
    rows = free[np.argsort(tokens.scope[free], kind="stable")]
    ordered = tokens.scope[rows]
    starts = (
        np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        if len(rows)
        else np.empty(0, dtype=np.int64)
    )
    sizes = np.diff(np.r_[starts, len(rows)])
    position = np.arange(len(rows)) - np.repeat(starts, sizes)
    signs = mixed(tokens.levels[-3][rows], position.astype(np.uint64))
    sums = mixed(np.add.reduceat(signs, starts), sizes.astype(np.uint64)) if len(rows) else signs
    return rows, ordered[starts], starts, sizes, sums


def _in_step(
    target: Tokens,
    golden: Tokens,
    mine: Ints,
    theirs: Ints,
    group: Ints,
) -> Bools:
    """Pairs of groups in which nothing speaks against the order: each call has the neighbours in
    the data flow that its partner has, or no other call of the group looks like it.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        left, right = pool.map(lambda tokens: tokens.levels[1], (target, golden))
    same: Bools = left[mine] == right[theirs]
    if same.all():
        return same
    doubtful = distinct(group[~same])
    return ~np.isin(group, doubtful) | _alone(target.levels[-3][mine], group)


def _alone(tokens: Words, group: Ints) -> Bools:
    """Which calls have a token that stands once in their group."""
    both = mixed(tokens, group.astype(np.uint64))
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    alone: Bools = counts[inverse] == 1
    return alone


def _groups(
    target: Words,
    golden: Words,
    mine: Ints,
    theirs: Ints,
) -> Iterable[tuple[Ints, Ints]]:
    """Calls of one scope on either side, for the scopes that both sides have, in the target's
    order.
    """
    if not len(mine) or not len(theirs):
        return []
    by_scope = [_split_by(scope[rows], rows) for scope, rows in ((target, mine), (golden, theirs))]
    return [(rows, by_scope[1][name]) for name, rows in by_scope[0].items() if name in by_scope[1]]


def _split_by(names: Words, rows: Ints) -> dict[int, Ints]:
    order = np.argsort(names, kind="stable")
    ordered = names[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    parts = np.split(rows[order], cuts)
    named = {
        int(ordered[start]): part for start, part in zip([0, *cuts.tolist()], parts, strict=True)
    }
    return dict(sorted(named.items(), key=lambda item: int(item[1][0])))


def _match(
    target: Tokens,
    golden: Tokens,
    mine: Ints,
    theirs: Ints,
    matching: _Matching,
    *,
    levels: int | None = None,
) -> None:
    """Match two sequences of calls, level by level; each level fills the gaps that the stricter
    ones left.
    """
    anchors = _anchors(target.signed, golden.signed, mine, theirs)
    matching.add(*_columns(anchors))
    for number in range(len(target.levels) if levels is None else levels):
        mine, theirs = mine[matching.target[mine] < 0], theirs[matching.golden[theirs] < 0]
        if not len(mine) or not len(theirs):
            return
        tokens = target.levels[number], golden.levels[number]
        pairs: list[Pair] = []
        for span in _gaps(mine, theirs, anchors):
            left, right = span
            new = common(tokens[0][left].tolist(), tokens[1][right].tolist())
            pairs.extend((int(left[i]), int(right[j])) for i, j in new)
        matching.add(*_columns(pairs))
        anchors = sorted([*anchors, *pairs])
        if number <= target.crossing:
            _match_anywhere(tokens, mine, theirs, matching)


def _anchors(
    target: Words,
    golden: Words,
    mine: Ints,
    theirs: Ints,
) -> list[Pair]:
    """Calls of two sequences that each read what no other call does, on both sides the same, as far
    as they stand in one order.
    """
    signs = []
    for signed, calls in ((target, mine), (golden, theirs)):
        known = calls[signed[calls] != 0]
        names, first, counts = np.unique(signed[known], return_index=True, return_counts=True)
        once = counts == 1
        signs.append(dict(zip(names[once].tolist(), known[first[once]].tolist(), strict=True)))
    shared = signs[0].keys() & signs[1].keys()
    ordered = [sorted((side[name], name) for name in shared) for side in signs]
    pairs = common([name for _, name in ordered[0]], [name for _, name in ordered[1]])
    return [(ordered[0][i][0], ordered[1][j][0]) for i, j in pairs]


def _gaps(mine: Ints, theirs: Ints, anchors: Sequence[Pair]) -> Iterable[tuple[Ints, Ints]]:
    """What is free between one anchor and the next, on either side."""
    if not anchors:
        return [(mine, theirs)]
    left = np.r_[0, np.searchsorted(mine, [a for a, _ in anchors]), len(mine)]
    right = np.r_[0, np.searchsorted(theirs, [b for _, b in anchors]), len(theirs)]
    wide = np.flatnonzero((left[1:] > left[:-1]) & (right[1:] > right[:-1])).tolist()
    return [(mine[left[gap] : left[gap + 1]], theirs[right[gap] : right[gap + 1]]) for gap in wide]


def _match_anywhere(
    tokens: Sequence[Words],
    mine: Ints,
    theirs: Ints,
    matching: _Matching,
) -> None:
    """Independent branches in another order: calls whose token stands equally often among what is
    left are matched across.
    """
    mine, theirs = mine[matching.target[mine] < 0], theirs[matching.golden[theirs] < 0]
    if not len(mine) or not len(theirs):
        return
    calls_of: dict[int, list[int]] = defaultdict(list)
    for call, token in zip(theirs.tolist(), tokens[1][theirs].tolist(), strict=True):
        calls_of[token].append(call)
    counts = Counter(tokens[0][mine].tolist())
    pairs, used = [], Counter[int]()
    for call, token in zip(mine.tolist(), tokens[0][mine].tolist(), strict=True):
        if len(calls_of.get(token, ())) == counts[token]:
            pairs.append((call, calls_of[token][used[token]]))
            used[token] += 1
    matching.add(*_columns(pairs))


def _columns(pairs: Sequence[Pair]) -> tuple[Ints, Ints]:
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _pair_renamed(target: Tokens, golden: Tokens, matching: _Matching) -> None:
    """Modules that bear another name on the other side: matched as wholes by the sequence of what
    they run, in order.
    """
    for part_t, part_g in _groups(target.part, golden.part, *matching.left()):
        mine = _modules(target, part_t)
        theirs = _modules(golden, part_g)
        for number in (-3, -2):
            names = [[sign[number] for _, sign in side] for side in (mine, theirs)]
            matched = list(common(names[0], names[1]))
            for i, j in matched:
                _match(target, golden, mine[i][0], theirs[j][0], matching)
            gone_t, gone_g = {i for i, _ in matched}, {j for _, j in matched}
            mine = [module for i, module in enumerate(mine) if i not in gone_t]
            theirs = [module for j, module in enumerate(theirs) if j not in gone_g]


def _modules(tokens: Tokens, rows: Ints) -> list[tuple[Ints, dict[int, int]]]:
    """The unmatched calls of each scope with a hash of their sequence at the two levels that tell
    modules apart.
    """
    modules = []
    for part in _split_by(tokens.scope[rows], rows).values():
        signs = {number: hash(tokens.levels[number][part].tobytes()) for number in (-3, -2)}
        modules.append((part, signs))
    return modules
