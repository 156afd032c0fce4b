# SPDX-License-Identifier: Apache-2.0
"""Which tensors are parts of others, and which have some elements in common: a packed batch and the
padded one, what one expert is given of all that there is, rows that one side fills otherwise.

By samples that no order of elements changes, and of which a whole has as many in common with a
part as the part's share is (kernels.reference, sample): those of small tensors are recorded, those
of others are taken where their values are kept.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opscope.compare.pair.crops import Cut, placed
from opscope.compare.side.records import samples_of, tensor_records
from opscope.errors import FormatError, MissingValueError, UsageError
from opscope.kernels.reference import MANTISSAS, sample
from opscope.narrow import widened
from opscope.run.hashes import within_groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opscope.arrays import Bools, Floats, Ints, Words
    from opscope.compare.side.columns import Side

NEAR = 2e-6  # of itself, within which an element of two tensors is one
# how near its mantissa is to the one looked for, times the number of elements, of one of many
# different ones: of few, as degrees are, two tensors have the same by chance
SPREAD = 2.0
LEAST = 3  # of a sample that a part and its whole have in common
ROUNDED = 1e-5  # of itself, within which an element is one that was computed otherwise


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


def borne_out(side: Side, other: Side, found: list[Cut]) -> list[Cut]:
    """The cuts that samples do not speak against, where both are recorded: an extreme may be that
    of first tokens, to which what is wrong behind them never comes. Rows of padding may be others.
    """
    parts, wholes = (
        samples_of(run, np.array([cut[at] for cut in found], dtype=np.int64))
        for at, run in enumerate((side, other))
    )
    unknown = np.isnan(parts).all(axis=1) | np.isnan(wholes).all(axis=1)
    same = _count_same(parts, wholes, ROUNDED)
    return [found[at] for at in np.flatnonzero(unknown | (same >= LEAST)).tolist()]


def alike_in_part(
    mine: Sampled, theirs: Sampled, ratios: Iterable[Fraction] = (Fraction(1),)
) -> tuple[Ints, Ints]:
    """Which tensors of both sides have elements in common, of one rank and step, and of sizes that
    are in one of these ratios: for each of mine that of which most is, of its own size if any.
    """
    own, other, same = _in_common(mine, theirs)
    sizes, others = mine.sizes[own], theirs.sizes[other]
    alike = np.zeros(len(own), dtype=np.bool_)
    for ratio in ratios:
        alike |= sizes * ratio.denominator == others * ratio.numerator
    order = np.lexsort((-same.sum(axis=1), sizes != others, own))
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
    return _count_same(samples_of(*mine), samples_of(*theirs), NEAR)


def _count_same(own: Floats, others: Floats, near: float) -> Ints:
    """How many elements of each sample are, as near as this, those of the other in its place."""
    same: Ints = (np.abs(own - others) <= near * np.abs(own)).sum(axis=1)
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


def sampled(side: Side, rows: Ints, *, values: bool) -> Sampled:
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
