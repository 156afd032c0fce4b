# SPDX-License-Identifier: Apache-2.0
"""Which tensors are parts of others, and which have some elements in common: a packed batch and the
padded one, what one expert is given of all that there is, rows that one side fills otherwise.

By samples that no order of elements changes, and of which a whole has as many in common with a
part as the part's share is (kernels.reference, sample): those of small tensors are recorded, those
of others are taken where their values are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from opscope.compare.pair.crops import placed
from opscope.compare.pair.meetings import nodes_of, vague
from opscope.compare.side.columns import ABSENT
from opscope.compare.side.records import samples_of, tensor_records
from opscope.errors import FormatError, MissingValueError, UsageError
from opscope.kernels.reference import FEWEST, MANTISSAS, sample
from opscope.narrow import widened
from opscope.run.hashes import within_groups
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Floats, Ints, Words
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

NEAR = 2e-6  # of itself, within which an element of two tensors is one
MOST = 1 << 17  # elements: of more, some are as near by chance
# how near its mantissa is to the one looked for, times the number of elements, of one of many
# different ones: of few, as degrees are, two tensors have the same by chance
SPREAD = 2.0
LEAST = 3  # of a sample that a part and its whole have in common
FEW = 200  # tensors that are apart for one that is a part, as what a maximum chooses is by chance
PAGE, MOST_READ = 1 << 12, 1 << 26  # elements that a tensor counts at least; that are read in all
MOST_ROWS = 1 << 17  # whose recorded samples are looked at


class Sampled(NamedTuple):
    """Tensors of one side: their samples, those of them that tell anything (NaN for the others),
    numbers of elements, and rank and step as one number.
    """

    samples: Floats
    telling: Floats
    sizes: Ints
    places: Words

    @classmethod
    def of(cls, samples: Floats, sizes: tuple[Ints, Ints], places: Words) -> Sampled:
        """Tensors by their samples. sizes: how many elements each has, and how many are not 0."""
        counts = np.maximum(sizes[1], 1)[:, None]
        telling = np.where(_distances(samples) <= SPREAD / counts, samples, np.nan)
        return cls(samples, telling, sizes[0], places)


class _Apart(NamedTuple):
    """The rows of a side that meet nothing and may have a sample; one of each content, which of
    them each row has, and the samples of these.
    """

    rows: Ints
    first: Ints
    node: Ints
    sampled: Sampled


def with_parts(pairing: Pairing, meetings: Meetings, chosen: tuple[Ints, Ints]) -> Meetings:
    """Meetings in which what meets nothing, but is a part of something of the other side that meets
    nothing, or has such a part, meets that; of the rows that were chosen, whose values are kept.
    The same meetings where these are few: they do not show a batch that is cut or packed otherwise.
    """
    apart = _all_apart(pairing, meetings, chosen, values=True)
    if apart is None:
        return meetings
    partner = [np.full(len(side.first), NONE) for side in apart]
    several = 0
    for number in (0, 1):
        parts, wholes = parts_of(apart[number].sampled, apart[1 - number].sampled)
        partner[number][parts], partner[1 - number][wholes] = wholes, parts
        several += len(np.unique(wholes))
    if not several or FEW * several < min(len(side.first) for side in apart):
        return meetings
    return _meeting(meetings, apart, partner)


def with_rows(pairing: Pairing, meetings: Meetings, chosen: tuple[Ints, Ints]) -> Meetings:
    """Meetings in which what meets nothing, but has elements in common with something of its size,
    meets that: what agrees but for rows that one side fills otherwise. The same where nothing does.
    """
    apart = _all_apart(pairing, meetings, chosen, values=False)
    if apart is None:
        return meetings
    mine, theirs = alike_in_part(apart[0].sampled, apart[1].sampled)
    partner = [np.full(len(side.first), NONE) for side in apart]
    partner[0][mine], partner[1][theirs] = theirs, mine
    return _meeting(meetings, apart, partner) if len(mine) else meetings


def _all_apart(
    pairing: Pairing, meetings: Meetings, chosen: tuple[Ints, Ints], *, values: bool
) -> list[_Apart] | None:
    """What is apart on both sides, None where that is too much to be looked at."""
    sides, flows = (pairing.target, pairing.golden), pairing.flows
    rows = [
        some[meetings.unmet(number)[some] & _may_have_one(side, values=values)[some]]
        for number, (side, some) in enumerate(zip(sides, chosen, strict=True))
    ]
    if max(map(len, rows)) > MOST_ROWS:
        return None
    nodes = [
        nodes_of(side, flow.state, some)
        for side, flow, some in zip(sides, flows, rows, strict=True)
    ]
    firsts = [first for first, _ in nodes]
    read = [
        np.maximum(side.tensors.size[first[side.tensors.kept[first]]], PAGE).sum()
        for side, first in zip(sides, firsts, strict=True)
    ]
    values = values and sum(read) <= MOST_READ
    sampled = [
        _sampled(side, first, values=values) for side, first in zip(sides, firsts, strict=True)
    ]
    return [
        _Apart(some, first, node, known)
        for some, (first, node), known in zip(rows, nodes, sampled, strict=True)
    ]


def _meeting(meetings: Meetings, apart: list[_Apart], partner: list[Ints]) -> Meetings:
    """Meetings in which what is apart meets its partner, by the places in what is apart."""
    errors, partners = [*map(np.copy, meetings.error)], [*map(np.copy, meetings.partner)]
    for number in (0, 1):
        met = partner[number][apart[number].node]
        rows = apart[number].rows[met >= 0]
        errors[number][rows] = 0.0
        partners[number][rows] = apart[1 - number].first[met[met >= 0]]
    return msgspec.structs.replace(
        meetings, error=(errors[0], errors[1]), partner=(partners[0], partners[1])
    )


def _distances(numbers: Floats) -> Floats:
    """How far the mantissas of numbers are from those of a sample; by the last axis."""
    distances: Floats = np.abs(2 * np.abs(np.frexp(numbers)[0]) - np.array(MANTISSAS))
    return distances


def parts_of(mine: Sampled, theirs: Sampled) -> tuple[Ints, Ints]:
    """Which tensors of one side are parts of which of the other, in one rank and step: that of
    which most is in common, of these the smallest, for each part once.
    """
    part, whole, same = _in_common(mine, theirs)
    own, others = mine.samples[part], theirs.samples[whole]
    held = (same | (_distances(others) <= _distances(own) + NEAR)).all(axis=1)
    held &= mine.sizes[part] < theirs.sizes[whole]
    order = np.lexsort((theirs.sizes[whole], -same.sum(axis=1), part))
    return _best(part, whole, order[held[order]])


def alike_in_part(mine: Sampled, theirs: Sampled) -> tuple[Ints, Ints]:
    """Which tensors of both sides have elements in common, of one size, rank and step: for each of
    mine that of which most is.
    """
    own, other, same = _in_common(mine, theirs)
    alike = mine.sizes[own] == theirs.sizes[other]
    order = np.lexsort((-same.sum(axis=1), own))
    return _best(own, other, order[alike[order]])


def _best(part: Ints, whole: Ints, order: Ints) -> tuple[Ints, Ints]:
    """Of pairs in an order the first of each part."""
    _, at = np.unique(part[order], return_index=True)
    return part[order[at]], whole[order[at]]


def _in_common(mine: Sampled, theirs: Sampled) -> tuple[Ints, Ints, Bools]:
    """The pairs of one rank and step whose samples have LEAST elements in common, and which of
    their elements are one.
    """
    pairs = [np.zeros((2, 0), dtype=np.int64)]
    for place in np.intersect1d(mine.places, theirs.places):
        part, whole = (np.flatnonzero(side.places == place) for side in (mine, theirs))
        equal = [
            own * len(whole) + other
            for own, other in map(_equal, mine.telling[part].T, theirs.telling[whole].T)
        ]
        codes, often = np.unique(np.concatenate(equal), return_counts=True)
        at, within = np.divmod(codes[often >= LEAST], len(whole))
        pairs.append(np.stack((part[at], whole[within])))
    part, whole = np.concatenate(pairs, axis=1)
    own = mine.telling[part]
    same = np.abs(own - theirs.telling[whole]) <= NEAR * np.abs(own)
    several = (np.diff(np.sort(np.where(same, own, np.nan))) > 0).sum(axis=1) + 1 >= LEAST
    return part[several], whole[several], same[several]


def in_common(mine: tuple[Side, Ints], theirs: tuple[Side, Ints]) -> Ints:
    """How many elements of its recorded sample each row of one side has in common with the other
    side's row in its place.
    """
    own, others = (_sampled(side, rows, values=False).samples for side, rows in (mine, theirs))
    same: Ints = (np.abs(own - others) <= NEAR * np.abs(own)).sum(axis=1)
    return same


def _equal(mine: Floats, theirs: Floats) -> tuple[Ints, Ints]:
    """The pairs of elements, by their places, that are one within NEAR; NaN is none."""
    order = np.argsort(theirs)
    slack = NEAR * np.abs(mine)
    begin = np.searchsorted(theirs[order], mine - slack, side="left")
    end = np.searchsorted(theirs[order], mine + slack, side="right")
    count = np.where(np.isnan(mine), 0, end - begin)
    which = np.repeat(np.arange(len(mine)), count)
    return which, order[begin[which] + within_groups(count)]


def _may_have_one(side: Side, *, values: bool) -> Bools:
    tensors = side.tensors
    sized = (tensors.size >= FEWEST) & (tensors.size <= MOST)
    known = tensors.kept if values else tensors.sampled
    floats: Bools = (tensors.min_int == ABSENT) & known & sized
    return floats & ~vague(side)


def _sampled(side: Side, rows: Ints, *, values: bool) -> Sampled:
    """The tensors of some rows; without a sample those whose values cannot be read."""
    samples = np.full((len(rows), len(MANTISSAS)), np.nan)
    recorded = side.tensors.sampled[rows]
    if recorded.any():
        samples[recorded] = samples_of(side, rows[recorded])
    others = np.flatnonzero(~recorded & side.tensors.kept[rows]) if values else np.zeros(0, int)
    known = tensor_records(side, rows[others])
    for at in others.tolist():
        try:
            kept = side.run.value(known[int(rows[at])])
        except (FormatError, MissingValueError, UsageError, MemoryError):
            continue
        if not np.iscomplexobj(kept):
            samples[at] = sample(widened(kept)) or np.nan
    sizes = side.tensors.size[rows]
    counts = sizes - side.tensors.zero[rows]
    return Sampled.of(samples, (sizes, counts), placed(side, rows, np.zeros_like(sizes)))
