# SPDX-License-Identifier: Apache-2.0
"""What one program computes in several passes and the other at once: the images of a triplet
through a network one after the other, or as one batch; two critics that are modules of their own,
or one with an axis for the two.

A tensor of the one holds what tensors of as many calls of one operator in one module of the other,
or in modules whose paths differ in one part, hold together: each of one size, or neighbours of any
(graphs one after the other, and all of them as one). Counts, sums, sums of squares and extremes of
parts are those of the whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opscope.compare.pair.crops import placed
from opscope.compare.pair.sketches import sketch
from opscope.compare.side.records import lines_of_calls
from opscope.run.hashes import mixed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opscope.arrays import Ints, Words
    from opscope.compare.side.columns import Side

MOST_PASSES = 16
STRIDES = (1, 2, 3)  # how the calls of one pass stand among those of its operator and module
MOST_RAGGED = 1 << 16  # tensors of several sizes that are looked at
FEWEST = 2  # elements of a whole that is parts by more than chance


class Joined(NamedTuple):
    """A row of one side, those of the other that hold the same together, and how far apart they
    are, to the scale of the whole.
    """

    whole: int
    parts: tuple[int, ...]
    error: float


def joined(side: Side, wholes: Ints, other: Side, parts: Ints, limit: float) -> Iterator[Joined]:
    """The wholes that hold, within a limit, what some parts do together: rows of either side."""
    if not len(parts):
        return
    wanted: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    tensors, calls = side.tensors, side.calls
    sizes_of_parts = np.unique(other.tensors.size[parts])
    made = np.unique(sizes_of_parts[:, None] * np.arange(2, MOST_PASSES + 1))
    all_wholes = wholes[tensors.size[wholes] >= FEWEST]
    for row in all_wholes[np.isin(tensors.size[all_wholes], made)].tolist():
        call = tensors.call[row]
        place = int(calls.rank[call]), int(calls.step[call])
        wanted[place][int(tensors.size[row])].append(row)
    joints: dict[Joined, None] = {}  # twins are passes of one module as well
    lines = lines_of_calls(other)[other.tensors.call[parts]]
    for group in _groups(other, parts, lines):
        call = other.tensors.call[group[0]]
        sizes = wanted.get((int(other.calls.rank[call]), int(other.calls.step[call])), {})
        size = int(other.tensors.size[group[0]])
        for count in range(2, min(MOST_PASSES, len(group)) + 1):
            rows = sizes.get(size * count)
            if rows:
                windows = _windows(group, count)
                joints |= dict.fromkeys(_matched(side, np.array(rows), other, windows, limit))
    data = ~other.tensors.parameter[parts]  # all parameters together are no batch
    groups = _ragged(other, parts[data], lines[data])
    joints |= dict.fromkeys(_of_several_sizes(side, all_wholes, other, groups, limit))
    yield from joints


def _ragged(side: Side, rows: Ints, lines: Words) -> list[Ints]:
    """Rows of one operator, phase and slot of a rank and step, of one module or one line, that are
    of several sizes; none where these are too many to look at.
    """
    size, alike = side.tensors.size, _in_places(side, rows, _about(side, rows), lines)
    groups = [group for group in alike if size[group].min() < size[group].max()]
    return groups if sum(map(len, groups)) <= MOST_RAGGED else []


def _of_several_sizes(
    side: Side, wholes: Ints, other: Side, groups: list[Ints], limit: float
) -> Iterator[Joined]:
    """The wholes that hold what neighbours in a group do together, which are of several sizes."""
    keys, size = placed(side, wholes, side.tensors.size[wholes]), other.tensors.size
    order = np.argsort(keys, kind="stable")
    wholes, keys = wholes[order], keys[order]
    for group in groups:
        for count in range(2, min(MOST_PASSES, len(group)) + 1):
            windows = _windows(group, count)
            sizes = size[windows]
            wanted = placed(other, windows[:, 0], sizes.sum(1))
            firsts = np.searchsorted(keys, wanted)
            ends = np.searchsorted(keys, wanted, side="right")
            found = np.flatnonzero((sizes.min(1) < sizes.max(1)) & (firsts < ends))
            for alike in _alike(found, wanted[found], least=1):
                whole = wholes[firsts[alike[0]] : ends[alike[0]]]
                yield from _matched(side, whole, other, windows[alike], limit)


def _groups(side: Side, rows: Ints, lines: Words) -> list[Ints]:
    """Rows of one operator, phase, slot and size of a rank and step, in their order: of one module,
    of one line, of modules that are twins, and what one call gives (as split does); several each.
    """
    tensors, calls = side.tensors, side.calls
    owner, sizes = tensors.call[rows], tensors.size[rows].astype(np.uint64)
    about = mixed(_about(side, rows), sizes)
    given = np.flatnonzero(tensors.output[rows])
    of_call = mixed(owner[given].astype(np.uint64), sizes[given])
    groups = [*_in_places(side, rows, about, lines), *_alike(rows[given], of_call)]
    for twins in _twins(side, calls.module[owner]):
        inside = np.flatnonzero(twins)
        groups.extend(_alike(rows[inside], mixed(about[inside], twins[inside])))
    return groups


def _in_places(side: Side, rows: Ints, about: Words, lines: Words) -> list[Ints]:
    """Rows of which as much is alike, and that are of one module, or of one line."""
    places = side.calls.module[side.tensors.call[rows]], lines
    return [group for place in places for group in _alike(rows, mixed(about, place))]


def _about(side: Side, rows: Ints) -> Words:
    """One number for the rank, step, operator, phase and slot of each row."""
    tensors, calls = side.tensors, side.calls
    owner = tensors.call[rows]
    return mixed(
        calls.rank[owner].astype(np.uint64), calls.step[owner].astype(np.uint64),
        calls.op[owner], calls.phase[owner], tensors.slot[rows],
        tensors.output[rows].astype(np.uint64),
    )  # fmt: skip


def _twins(side: Side, modules: Words) -> Iterator[Words]:
    """Of each module what it shares with those whose paths differ from its own in one part, 0 where
    there are none; part by part.
    """
    known, each = np.unique(modules, return_inverse=True)
    paths = [text.split(".") for text in side.texts(known)]
    for part in range(max(map(len, paths), default=0)):
        shared = [
            ".".join([*path[:part], "*", *path[part + 1 :]]) if len(path) > part else ""
            for path in paths
        ]
        often = Counter(shared)
        numbers = {text: number for number, text in enumerate(often, 1)}
        twins = [numbers[text] if text and often[text] > 1 else 0 for text in shared]
        yield np.array(twins, dtype=np.uint64)[each]


def _alike(rows: Ints, about: Words, least: int = 2) -> list[Ints]:
    order = np.lexsort((rows, about))
    cuts = np.flatnonzero(np.diff(about[order])) + 1
    return [rows[group] for group in np.split(order, cuts) if len(group) >= least]


def _windows(group: Ints, count: int) -> Ints:
    """So many neighbours each, at every stride."""
    windows = [
        group[np.arange(last)[:, None] + stride * np.arange(count)]
        for stride in STRIDES
        if (last := len(group) - stride * (count - 1)) > 0
    ]
    return np.concatenate(windows)


def _matched(side: Side, rows: Ints, other: Side, windows: Ints, limit: float) -> Iterator[Joined]:
    """Of each row the nearest window, if it is near enough; those of other norms are passed by."""
    whole, parts = side.tensors, other.tensors
    norms = np.sqrt((parts.l2norm[windows] ** 2).sum(1))
    windows = windows[np.argsort(norms, kind="stable")]
    norms = np.sort(norms, kind="stable")
    wanted = whole.l2norm[rows]
    lows, highs = (np.searchsorted(norms, wanted * (1 + by)) for by in (-limit, limit))
    for at in np.flatnonzero(lows < highs).tolist():
        row, near = int(rows[at]), slice(int(lows[at]), int(highs[at]))
        held = sketch(side, [row])
        errors = [sketch(other, window).error(held) for window in windows[near].tolist()]
        best = min(range(len(errors)), key=errors.__getitem__)
        if errors[best] <= limit:
            yield Joined(row, tuple(windows[near][best].tolist()), errors[best])
