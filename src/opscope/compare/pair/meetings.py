# SPDX-License-Identifier: Apache-2.0
"""Where two differently written programs hold the same: tensors that agree in value, whatever their
shape, axes, element type or name.

The numbers of elements, norm, mean, minimum and maximum, which no order of elements changes, tell
how far two tensors are apart at least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.pair.crops import (
    Cut,
    cut_from_apart,
    cut_tables,
    cuts,
    placed,
    shares,
    written,
)
from opscope.compare.pair.passes import joined
from opscope.compare.pair.samples import borne_out
from opscope.compare.pair.tensors import product_unit, roundoffs, statistic_error
from opscope.compare.side.call_rows import inputs_of
from opscope.compare.side.cancelled_means import cancelled_means
from opscope.compare.side.columns import ABSENT, Side
from opscope.compare.side.reduced_products import UNIT as REDUCED
from opscope.compare.side.reduced_products import reduced_products
from opscope.operators.catalogue import family, traits_of
from opscope.run.hashes import mixed
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Floats, Ints, Words
    from opscope.compare.pair.pairing import Pairing

NEIGHBOURS = 6  # tensors of the nearest norms, to either side, that are looked at
HUGE = 1e30  # of such a number, as masks are filled with, norm and mean tell nothing else
CROPPED = 0.125  # of limits, in which an extreme of a part is that of the whole
AGREEING = 128.0  # roundings that two ways to compute one thing may be apart in statistics
COARSEST = 0.03
FINEST = 2.0**-24  # the unit roundoff of float32
TWO = 1e-6  # of the squared span: what is between two numbers in a tensor of these alone
VARIED = 1e-3  # of the largest, by which elements are other numbers by more than rounding
FEW = 4  # elements that may be of two numbers by chance; how often few integers are there each
CENTRED, SCALED = 1e-5, 1e-2  # the mean and the variance that norms leave, from 0 and 1


class Meetings(msgspec.Struct, frozen=True):
    """For each tensor row of target and golden how far the nearest tensor of its rank and step on
    the other side is, relative to its scale (NaN where nothing is known), and that row; unit is
    that in which the coarser of both sides computes.
    """

    error: tuple[Floats, Floats]
    partner: tuple[Ints, Ints]
    limit: tuple[Floats, Floats]
    unit: float

    @property
    def coarse(self) -> bool:
        """Whether that is so coarse, as bfloat16's, that limits are all they may be."""
        return is_coarse(self.unit)

    def unmet(self, number: int, share: float = 1.0) -> Bools:
        """The rows of a side (0 the target) that agree with nothing of the other by so much of
        their limits.
        """
        apart: Bools = self.error[number] > share * self.limit[number]
        return apart


def meet(pairing: Pairing, chosen: tuple[Ints, Ints]) -> Meetings:
    """The meetings of some rows of target and golden."""
    sides = pairing.target, pairing.golden
    nodes = [
        nodes_of(side, flow.state, rows)
        for side, flow, rows in zip(sides, pairing.flows, chosen, strict=True)
    ]
    errors, partners, limits = [], [], []
    coarse = coarse_unit(sides)
    firsts = nodes[0][0], nodes[1][0]
    nearest = [
        _nearest(sides[number], sides[1 - number], firsts[number], firsts[1 - number])
        for number in (0, 1)
    ]
    _join(sides, firsts, nearest, AGREEING * coarse)
    _pad(sides, firsts, nearest, AGREEING * coarse)
    at = [np.full(len(side.tensors), NONE) for side in sides]
    for node_of, rows, (_, inverse) in zip(at, chosen, nodes, strict=True):
        node_of[rows] = inverse
    _crop(pairing, firsts, at, nearest, AGREEING * coarse)
    _repeat(sides, firsts, nearest, AGREEING * coarse)
    for number in (0, 1):
        _unmask(sides[number], at[number], nearest[number], AGREEING * coarse)
        _pair_up(sides[number], at[number], nearest[number], AGREEING * coarse)
        (_, inverse), (error, partner) = nodes[number], nearest[number]
        whole = np.full(len(sides[number].tensors), np.nan)
        partner_of = np.full(len(sides[number].tensors), NONE)
        whole[chosen[number]], partner_of[chosen[number]] = error[inverse], partner[inverse]
        errors.append(whole)
        partners.append(partner_of)
        limits.append(limits_of(sides[number], coarse))
    return Meetings(
        error=(errors[0], errors[1]),
        partner=(partners[0], partners[1]),
        limit=(limits[0], limits[1]),
        unit=coarse,
    )


def coarse_unit(sides: tuple[Side, Side]) -> float:
    """The unit roundoff in which the coarser of two sides computes, at least that of float32; of a
    device that shortens some products all that comes of them.
    """
    reduced = [reduced_products(side) for side in sides]
    shortened = REDUCED if any(flags.any() for flags in reduced) else 0.0
    return max(FINEST, *map(product_unit, sides, reduced), shortened)


def is_coarse(unit: float) -> bool:
    """Whether limits in a unit, as bfloat16's, are all they may be."""
    return AGREEING * unit >= COARSEST


def limits_of(side: Side, coarse: float) -> Floats:
    """How far each tensor row of a side may be from the same, computed otherwise; coarse is the
    unit of both sides.
    """
    known, units, _ = roundoffs(side)
    unit = np.maximum(units, coarse)[np.searchsorted(known, side.tensors.dtype)]
    return np.minimum(AGREEING * unit, COARSEST)


def _join(
    sides: tuple[Side, Side],
    firsts: tuple[Ints, Ints],
    nearest: list[tuple[Floats, Ints]],
    limit: float,
) -> None:
    """What meets nothing alone, but as several passes together; written into nearest."""
    telling = [rows[~vague(run)[rows]] for run, rows in zip(sides, firsts, strict=True)]
    for number in (0, 1):
        side, other = sides[number], sides[1 - number]
        rows, (error, _) = firsts[1 - number], nearest[1 - number]
        apart = np.intersect1d(rows[error > limit], telling[1 - number])
        index_of = [dict(zip(rows.tolist(), range(len(rows)), strict=True)) for rows in firsts]
        for joint in joined(side, telling[number], other, apart, limit):
            pairs = [(number, joint.whole, joint.parts[0])]
            pairs += [(1 - number, part, joint.whole) for part in joint.parts]
            for which, row, partner in pairs:
                _take_nearer(nearest[which], index_of[which][row], joint.error, partner)


def _take_nearer(nearest: tuple[Floats, Ints], at: int, error: float, partner: int) -> None:
    if error < nearest[0][at]:
        nearest[0][at], nearest[1][at] = error, partner


def _pad(
    sides: tuple[Side, Side],
    firsts: tuple[Ints, Ints],
    nearest: list[tuple[Floats, Ints]],
    limit: float,
) -> None:
    """What meets nothing of its size, but something that is longer or shorter by zeros alone, as
    a batch of sequences is that are filled up to one length; written into nearest.
    """
    bare = _without_zeros(sides[0]), _without_zeros(sides[1])
    telling = [rows[~vague(side)[rows]] for side, rows in zip(bare, firsts, strict=True)]
    for number in (0, 1):
        error, partner = nearest[number]
        at, errors, met = _near(bare, telling, firsts, error, limit, number)
        error[at], partner[at] = errors, met


def _near(
    sides: tuple[Side, Side],
    telling: list[Ints],
    firsts: tuple[Ints, Ints],
    error: Floats,
    limit: float,
    number: int,
) -> tuple[Ints, Floats, Ints]:
    """Of a side's rows that meet nothing so far those that do as both sides are seen here: places
    among its first rows, errors, and rows of the other side.
    """
    rows = firsts[number]
    at = np.flatnonzero(np.isin(rows, telling[number]) & (error > limit))
    errors, met = _nearest(sides[number], sides[1 - number], rows[at], telling[1 - number])
    near = errors <= limit
    return at[near], errors[near], met[near]


def _repeat(
    sides: tuple[Side, Side],
    firsts: tuple[Ints, Ints],
    nearest: list[tuple[Floats, Ints]],
    limit: float,
) -> None:
    """What meets nothing of its size, but something that is repeated several times, or of which it
    is so: a table for all rows of a batch, keys for each group of heads; written into nearest.
    """
    alone = _once(sides[0]), _once(sides[1])
    sizes = [side.tensors.size for side in sides]
    telling = [
        rows[_varied(side)[rows] & (size[rows] >= FEW)]
        for side, size, rows in zip(sides, sizes, firsts, strict=True)
    ]
    for number in (0, 1):
        error, partner = nearest[number]
        at, errors, met = _near(alone, telling, firsts, error, limit, number)
        own, others = sizes[number][firsts[number][at]], sizes[1 - number][met]
        times = (np.maximum(own, others) % np.minimum(own, others) == 0) & (own != others)
        error[at[times]], partner[at[times]] = errors[times], met[times]


def _varied(side: Side) -> Bools:
    """Rows of floats that are not nearly all one number, as norms of what was normed are."""
    tensors = side.tensors
    with np.errstate(invalid="ignore"):
        reach = np.fmax(np.abs(tensors.min), np.abs(tensors.max))
        varied: Bools = tensors.max - tensors.min > VARIED * reach
    varied &= ~vague(side) & (tensors.min_int == ABSENT)
    return varied


def _once(side: Side) -> Side:
    """A side in which each tensor counts as one element of it, as what is repeated does."""
    tensors = side.tensors
    once = msgspec.structs.replace(
        tensors,
        size=np.ones_like(tensors.size),
        l2norm=tensors.l2norm / np.sqrt(np.maximum(tensors.size, 1)),
    )
    return msgspec.structs.replace(side, tensors=once)


def _crop(
    pairing: Pairing,
    firsts: tuple[Ints, Ints],
    at: list[Ints],
    nearest: list[tuple[Floats, Ints]],
    limit: float,
) -> None:
    """What meets nothing, but is a part of something that meets nothing, where one of the two cuts
    its data, no samples speak against it, and it is not cut out of a whole that is apart; written
    into nearest for both. at: the node of each row.
    """
    sides = pairing.target, pairing.golden
    some = [
        rows[(error > limit) & ~vague(side)[rows]]
        for side, rows, (error, _) in zip(sides, firsts, nearest, strict=True)
    ]
    apart = [
        (np.r_[error, np.inf][node] > limit) for node, (error, _) in zip(at, nearest, strict=True)
    ]
    for number in (0, 1):
        side, other, (error, partner) = sides[number], sides[1 - number], nearest[number]
        tables = cut_tables(side)
        for given, made in at[number][np.array(tables, dtype=np.int64).reshape(-1, 2)].tolist():
            if given >= 0 and error[given] <= limit < error[made]:
                error[made], partner[made] = error[given], partner[given]
        near = list[Cut]()
        for share in sorted(shares(side, tables)):
            near += cuts(
                side, some[number], other, some[1 - number], share=share, limit=CROPPED * limit
            )
        for cut in borne_out(side, other, near):
            if cut_from_apart(side, pairing.flows[number], apart[number], cut.part):
                continue
            for which, row, met in (
                (number, cut.part, cut.whole),
                (1 - number, cut.whole, cut.part),
            ):
                _take_nearer(nearest[which], int(at[which][row]), cut.error, met)


def _unmask(side: Side, node: Ints, nearest: tuple[Floats, Ints], limit: float) -> None:
    """What meets nothing, but of which what a mask leaves does: as far as it counts it is the same;
    written into nearest. node: that of each row.
    """
    tensors, (error, partner) = side.tensors, nearest
    masking = side.which(side.calls.op, _leaves_some) & side.calls.leaf
    dim, mask = vague(side), (tensors.min >= 0) & (tensors.max <= 1)
    apart = np.r_[error, np.inf][node] > limit  # of what has no node, nothing is known
    reads_apart = np.zeros(len(side.calls), dtype=np.bool_)
    reads_apart[tensors.call[apart & ~dim & ~tensors.output]] = True
    masking &= reads_apart
    for row in np.flatnonzero(masking[tensors.call] & tensors.output & ~dim & ~apart).tolist():
        read = inputs_of(side, int(tensors.call[row]))
        masked = [at for at in read if tensors.size[at] == tensors.size[row] and not dim[at]]
        rest = [at for at in read if at not in masked]
        if len(masked) == 1 and rest and all(dim[at] and mask[at] for at in rest):
            own = node[masked[0]]
            if own >= 0 and error[own] > limit:
                error[own], partner[own] = error[node[row]], partner[node[row]]


def _pair_up(side: Side, node: Ints, nearest: tuple[Floats, Ints], limit: float) -> None:
    """Complex numbers that meet nothing, but are a view of what does: the other side may compute
    with their parts; written into nearest. node: that of each row.
    """
    tensors, (error, partner) = side.tensors, nearest
    viewing = side.which(side.calls.op, lambda op: traits_of(op).view) & side.calls.leaf
    complex_ = side.which(tensors.dtype, lambda dtype: dtype.startswith("complex"))
    for row in np.flatnonzero(tensors.output & complex_ & viewing[tensors.call]).tolist():
        read = [at for at in inputs_of(side, int(tensors.call[row])) if not complex_[at]]
        own = node[row]
        if len(read) == 1 and own >= 0 <= node[read[0]] and error[own] > limit:
            error[own], partner[own] = error[node[read[0]]], partner[node[read[0]]]


def _leaves_some(op: str) -> bool:
    """Whether an operator may leave what a mask chooses of an input, and nothing of the rest."""
    traits = traits_of(op)
    return family(op) == "mul" or (traits.moves and (traits.guards or traits.masks))


def _without_zeros(side: Side) -> Side:
    """The side with statistics of what is not zero in each tensor."""
    tensors = side.tensors
    size = np.where(tensors.zero > 0, tensors.size - tensors.zero, tensors.size)
    share = tensors.size / np.maximum(size, 1)
    bare = msgspec.structs.replace(
        tensors,
        size=size,
        mean=tensors.mean * share,
        min=np.fmin(tensors.min, 0.0),
        max=np.fmax(tensors.max, 0.0),
        min_int=np.full_like(tensors.min_int, ABSENT),
        max_int=np.full_like(tensors.max_int, ABSENT),
    )
    return msgspec.structs.replace(side, tensors=bare)


def among_zeros(sides: tuple[Side, Side], meetings: Meetings, number: int) -> Bools:
    """Rows of a side that agree with something of another number of elements but for zeros, among
    which theirs are.
    """
    tensors, others = sides[number].tensors, sides[1 - number].tensors
    partner = meetings.partner[number]
    size = np.where(partner >= 0, others.size[partner], tensors.size)
    scattered: Bools = (tensors.zero > 0) & (tensors.size > size) & ~meetings.unmet(number)
    return scattered


def normed(side: Side) -> Bools:
    """Rows of mean 0 and variance 1, as norms leave them: of any two of a size only the extremes
    tell, and these may stand where the two are equal.
    """
    tensors = side.tensors
    with np.errstate(invalid="ignore"):
        power = tensors.l2norm**2 / np.maximum(tensors.size, 1)
        normal: Bools = (np.abs(tensors.mean) <= CENTRED) & (np.abs(power - 1) <= SCALED)
    return normal & (tensors.size > FEW)


def same_elements(side: Side, other: Side) -> Bools:
    """Rows of a side that hold what one of the other does in their rank and step, by its digest:
    more than one number.
    """
    mine, theirs = (
        mixed(_place(run, np.arange(len(run.tensors))), run.tensors.digest) for run in (side, other)
    )
    tensors = side.tensors
    telling = tensors.digested & (tensors.size > FEW) & (tensors.min < tensors.max)
    shared: Bools = telling & np.isin(mine, theirs[other.tensors.digested])
    return shared


def multiplied(side: Side, times: Floats | float) -> Side:
    """A side that holds a multiple of every tensor: of all alike, or as many times as each row is
    given, none of them 0.
    """
    tensors, turned = side.tensors, np.less(times, 0)
    least, most = tensors.min * times, tensors.max * times
    scaled = msgspec.structs.replace(
        tensors,
        min=np.where(turned, most, least),
        max=np.where(turned, least, most),
        mean=tensors.mean * times,
        l2norm=tensors.l2norm * np.abs(times),
        pos_inf=np.where(turned, tensors.neg_inf, tensors.pos_inf),
        neg_inf=np.where(turned, tensors.pos_inf, tensors.neg_inf),
    )
    return msgspec.structs.replace(side, tensors=scaled)


def vague(side: Side) -> Bools:
    """Rows of which statistics tell nothing: not counted, filled with huge numbers or with one that
    may be written down, or with two, as masks and choices are: each choice of as many has the same;
    averages of which rounding is left.
    """
    tensors = side.tensors
    with np.errstate(invalid="ignore"):
        bounded = np.fmax(np.abs(tensors.min), np.abs(tensors.max)) < HUGE
    filled = (tensors.min == tensors.max) & (tensors.size > 1)
    few = np.where(filled, written(tensors.max), _of_few(side))
    silent: Bools = ~bounded | ~np.isfinite(tensors.l2norm) | few | cancelled_means(side)
    return silent


def _of_few(side: Side) -> Bools:
    """Rows of two numbers alone: where (x - least)(most - x) is 0 on average, it is everywhere; and
    of few integers.
    """
    tensors = side.tensors
    with np.errstate(invalid="ignore", over="ignore"):
        span = tensors.max - tensors.min
        squares = tensors.l2norm**2 / np.maximum(tensors.size, 1)
        between = tensors.mean * (tensors.min + tensors.max) - tensors.min * tensors.max - squares
        reach = np.fmax(np.abs(tensors.min), np.abs(tensors.max))
        two = np.abs(between) <= TWO * np.fmin(span, reach) ** 2
        few = FEW * (span + 1) <= tensors.size
    few &= tensors.min_int != ABSENT
    repetitive: Bools = few | (two & (tensors.size > FEW))
    return repetitive


def nodes_of(side: Side, state: Words, rows: Ints) -> tuple[Ints, Ints]:
    """One row of each content of a rank and step, and which of them each of the rows has; complex
    numbers are another content than their parts are.
    """
    content = mixed(state[rows], _place(side, rows))
    _, first, inverse = np.unique(content, return_index=True, return_inverse=True)
    return rows[first], inverse


def _nearest(side: Side, other: Side, mine: Ints, theirs: Ints) -> tuple[Floats, Ints]:
    """For each row of mine the error to the nearest of theirs of its place and size, and that."""
    error, partner = np.full(len(mine), np.inf), np.full(len(mine), NONE)
    if not len(mine) or not len(theirs):
        return error, partner
    my_places, their_places = _place(side, mine), _place(other, theirs)
    _, codes = np.unique(np.r_[my_places, their_places], return_inverse=True)
    own, owned = codes[: len(my_places)], codes[len(my_places) :]
    norm, norms = (
        np.nan_to_num(tensors.l2norm[rows], nan=-1.0)
        for tensors, rows in ((side.tensors, mine), (other.tensors, theirs))
    )
    order = np.lexsort((norms, owned))
    both = np.lexsort((np.r_[np.zeros(len(own)), np.ones(len(owned))], np.r_[norm, norms], codes))
    before = np.cumsum(both >= len(own))[np.argsort(both)[: len(own)]]
    for shift in range(-NEIGHBOURS, NEIGHBOURS):
        at = before + shift
        inside = (at >= 0) & (at < len(order))
        near = order[np.clip(at, 0, len(order) - 1)]
        inside &= owned[near] == own
        rows = np.flatnonzero(inside)
        errors = statistic_error(side.tensors, other.tensors, mine[rows], theirs[near[rows]])
        better = rows[errors < error[rows]]
        error[better], partner[better] = errors[errors < error[rows]], theirs[near[better]]
    return error, partner


def _place(side: Side, rows: Ints) -> Words:
    return placed(side, rows, side.tensors.size[rows])
