# SPDX-License-Identifier: Apache-2.0
"""Which tensors are parts of others, where values are kept: a packed batch of the padded one, what
one expert is given of all that there is.

Of each of some mantissas the element that is nearest to it: a sample that no order of elements
changes, and of which a whole has as many in common with a part as the part's share is. It is that
of min-wise hashing (Broder, 1997) with a function that roundings change next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from opscope.compare.pair.crops import placed
from opscope.compare.pair.meetings import nodes_of, vague
from opscope.compare.side.columns import ABSENT
from opscope.compare.side.records import tensor_records
from opscope.errors import FormatError, MissingValueError, UsageError
from opscope.narrow import widened
from opscope.run.hashes import within_groups
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Floats, Ints, Words
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

MANTISSAS = np.array([1.03, 1.15, 1.29, 1.41, 1.53, 1.67, 1.79, 1.93])
NEAR = 2e-6  # of itself, within which an element of two tensors is one
FEWEST, MOST = 8, 1 << 17  # elements: of more, some are as near by chance
LEAST = 3  # of a sample that a part and its whole have in common
FEW = 200  # tensors that are apart for one that is a part, as what a maximum chooses is by chance
HUGE = 8192.0  # as masks are filled with
PAGE, MOST_READ = 1 << 12, 1 << 26  # elements that a tensor counts at least; that are read in all


class Sampled(NamedTuple):
    """Tensors of one side: their samples, numbers of elements, and rank and step as one number."""

    samples: Floats
    sizes: Ints
    places: Words


def with_parts(pairing: Pairing, meetings: Meetings, chosen: tuple[Ints, Ints]) -> Meetings:
    """Meetings in which what meets nothing, but is a part of something of the other side that meets
    nothing, or has such a part, meets that; of the rows that were chosen, whose values are kept.
    The same meetings where these are few: they do not show a batch that is cut or packed otherwise.
    """
    sides, flows = (pairing.target, pairing.golden), pairing.flows
    apart = [
        rows[meetings.unmet(number)[rows] & _may_be_read(side)[rows]]
        for number, (side, rows) in enumerate(zip(sides, chosen, strict=True))
    ]
    nodes = [
        nodes_of(side, flow.state, rows)
        for side, flow, rows in zip(sides, flows, apart, strict=True)
    ]
    sizes = [side.tensors.size[first] for side, (first, _) in zip(sides, nodes, strict=True)]
    if np.maximum(np.concatenate(sizes), PAGE).sum() > MOST_READ:
        return meetings
    sampled = [_sampled(side, first) for side, (first, _) in zip(sides, nodes, strict=True)]
    partner = [np.full(len(first), NONE) for first, _ in nodes]
    several = 0
    for number in (0, 1):
        parts, wholes = parts_of(sampled[number], sampled[1 - number])
        partner[number][parts], partner[1 - number][wholes] = wholes, parts
        several += len(np.unique(wholes))
    if not several or FEW * several < min(map(len, sizes)):
        return meetings
    errors, partners = [*map(np.copy, meetings.error)], [*map(np.copy, meetings.partner)]
    for number in (0, 1):
        met = partner[number][nodes[number][1]]
        rows = apart[number][met >= 0]
        errors[number][rows] = 0.0
        partners[number][rows] = nodes[1 - number][0][met[met >= 0]]
    return msgspec.structs.replace(
        meetings, error=(errors[0], errors[1]), partner=(partners[0], partners[1])
    )


def sample(values: Array) -> Floats:
    """Of each of MANTISSAS the element whose own is nearest, the largest of several; NaN where
    there is none. Zeros, what is not finite and what a mask is filled with are none.
    """
    numbers = np.unique(widened(values).astype(np.float64, copy=False))
    numbers = numbers[np.isfinite(numbers) & (np.abs(numbers) <= HUGE) & (numbers != 0)]
    if not len(numbers):
        return np.full(len(MANTISSAS), np.nan)
    numbers = numbers[np.argsort(-np.abs(numbers), kind="stable")]
    nearest: Floats = numbers[np.argmin(_distances(numbers[:, None]), axis=0)]
    return nearest


def _distances(numbers: Floats) -> Floats:
    """How far the mantissas of numbers are from those of a sample; by the last axis."""
    distances: Floats = np.abs(2 * np.abs(np.frexp(numbers)[0]) - MANTISSAS)
    return distances


def parts_of(mine: Sampled, theirs: Sampled) -> tuple[Ints, Ints]:
    """Which tensors of one side are parts of which of the other, in one rank and step: that of
    which most is in common, of these the smallest, for each part once.
    """
    part, whole = _in_common(mine, theirs)
    own, others = mine.samples[part], theirs.samples[whole]
    same = np.abs(own - others) <= NEAR * np.abs(own)
    held = (same | (_distances(others) <= _distances(own) + NEAR)).all(axis=1)
    distinct = (np.diff(np.sort(np.where(same, own, np.nan))) > 0).sum(axis=1) + 1
    held &= (distinct >= LEAST) & (mine.sizes[part] < theirs.sizes[whole])
    order = np.lexsort((theirs.sizes[whole], -same.sum(axis=1), part))
    order = order[held[order]]
    _, at = np.unique(part[order], return_index=True)
    return part[order[at]], whole[order[at]]


def _in_common(mine: Sampled, theirs: Sampled) -> tuple[Ints, Ints]:
    """The pairs of one rank and step whose samples have LEAST elements in common."""
    pairs = [np.zeros((2, 0), dtype=np.int64)]
    for place in np.intersect1d(mine.places, theirs.places):
        part, whole = (np.flatnonzero(side.places == place) for side in (mine, theirs))
        equal = [
            own * len(whole) + other
            for own, other in map(_equal, mine.samples[part].T, theirs.samples[whole].T)
        ]
        codes, often = np.unique(np.concatenate(equal), return_counts=True)
        at, within = np.divmod(codes[often >= LEAST], len(whole))
        pairs.append(np.stack((part[at], whole[within])))
    part, whole = np.concatenate(pairs, axis=1)
    return part, whole


def _equal(mine: Floats, theirs: Floats) -> tuple[Ints, Ints]:
    """The pairs of elements, by their places, that are one within NEAR; NaN is none."""
    order = np.argsort(theirs)
    slack = NEAR * np.abs(mine)
    begin = np.searchsorted(theirs[order], mine - slack, side="left")
    end = np.searchsorted(theirs[order], mine + slack, side="right")
    count = np.where(np.isnan(mine), 0, end - begin)
    which = np.repeat(np.arange(len(mine)), count)
    return which, order[begin[which] + within_groups(count)]


def _may_be_read(side: Side) -> Bools:
    tensors = side.tensors
    sized = (tensors.size >= FEWEST) & (tensors.size <= MOST)
    floats: Bools = (tensors.min_int == ABSENT) & tensors.kept & sized
    return floats & ~vague(side)


def _sampled(side: Side, rows: Ints) -> Sampled:
    """The tensors of some rows; without a sample those whose values cannot be read."""
    samples = np.full((len(rows), len(MANTISSAS)), np.nan)
    known = tensor_records(side, rows)
    for at, row in enumerate(rows.tolist()):
        try:
            values = side.run.value(known[row])
        except (FormatError, MissingValueError, UsageError, MemoryError):
            continue
        if not np.iscomplexobj(values):
            samples[at] = sample(values)
    sizes = side.tensors.size[rows]
    return Sampled(samples, sizes, placed(side, rows, np.zeros_like(sizes)))
