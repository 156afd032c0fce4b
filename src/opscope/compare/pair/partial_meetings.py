# SPDX-License-Identifier: Apache-2.0
"""Meetings of tensors that meet nothing, but are parts of others, or have some elements in common
with them (samples.py).
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from opscope.compare.pair.crops import cut_tables, shares
from opscope.compare.pair.meetings import nodes_of, vague
from opscope.compare.pair.samples import LEAST, alike_in_part, parts_of, sampled
from opscope.compare.side.columns import ABSENT
from opscope.kernels.reference import FEWEST
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.pair.samples import Sampled
    from opscope.compare.side.columns import Side

MOST = 1 << 17  # elements: of more, some are as near by chance
FEW = 200  # tensors that are apart for one that is a part, as what a maximum chooses is by chance
LEAST_WHOLES = 8  # of a batch that is packed there are more: fewer are what one side chooses
MOST_ROWS = 1 << 17  # whose recorded samples are looked at
PAGE, MOST_READ = 1 << 12, 1 << 26  # elements that a tensor counts at least; that are read in all


class _Apart(NamedTuple):
    """The rows of a side that meet nothing and may have a sample; one of each content, which of
    them each row has, and the samples of these.
    """

    rows: Ints
    first: Ints
    node: Ints
    sampled: Sampled


def with_parts(
    pairing: Pairing, meetings: Meetings, chosen: tuple[Ints, Ints], vague: tuple[Bools, Bools]
) -> tuple[Meetings, tuple[Bools, Bools]]:
    """Meetings in which what meets nothing, but is a part of something of the other side that meets
    nothing, or has such a part, meets that; of the rows that were chosen, whose values are kept, or
    a sample. With them the rows of either side of which statistics tell nothing, and of the others
    those of which nobody could tell that they are parts: integers and flags, and what has no sample
    that tells anything. The same of both where parts are few: they do not show a batch that is cut
    or packed otherwise.
    """
    apart = _all_apart(pairing, meetings, chosen, values=True)
    if apart is None:
        return meetings, vague
    partner = [np.full(len(side.first), NONE) for side in apart]
    several = 0
    for number in (0, 1):
        parts, wholes = parts_of(apart[number].sampled, apart[1 - number].sampled)
        partner[number][parts], partner[1 - number][wholes] = wholes, parts
        several += len(np.unique(wholes))
    if several < LEAST_WHOLES or FEW * several < min(len(side.first) for side in apart):
        return meetings, vague
    mine, theirs = (
        vague[number] | _partless(side, meetings.unmet(number), apart[number])
        for number, side in enumerate((pairing.target, pairing.golden))
    )
    return _meeting(meetings, apart, partner), (mine, theirs)


def _partless(side: Side, unmet: Bools, apart: _Apart) -> Bools:
    """The rows that meet nothing and of which nobody could tell that they are parts."""
    silent: Bools = unmet & (side.tensors.min_int != ABSENT)
    telling = (~np.isnan(apart.sampled.telling)).sum(axis=1) >= LEAST
    silent[apart.rows[~telling[apart.node]]] = True
    return silent


def with_rows(pairing: Pairing, meetings: Meetings, chosen: tuple[Ints, Ints]) -> Meetings:
    """Meetings in which what meets nothing, but has elements in common with something of its size,
    meets that: what agrees but for rows that one side fills otherwise; or of a size of which it is
    what is left where data is cut. The same where nothing does.
    """
    apart = _all_apart(pairing, meetings, chosen, values=False)
    if apart is None:
        return meetings
    left = [shares(side, cut_tables(side)) for side in (pairing.target, pairing.golden)]
    ratios = {Fraction(1), *left[0], *(1 / share for share in left[1])}
    mine, theirs = alike_in_part(apart[0].sampled, apart[1].sampled, ratios)
    sizes = apart[0].sampled.sizes[mine], apart[1].sampled.sizes[theirs]
    last = np.argsort(sizes[0] == sizes[1], kind="stable")  # what is of one size counts
    mine, theirs = mine[last], theirs[last]
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
    both = [sampled(side, first, values=values) for side, first in zip(sides, firsts, strict=True)]
    return [
        _Apart(some, first, node, known)
        for some, (first, node), known in zip(rows, nodes, both, strict=True)
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


def _may_have_one(side: Side, *, values: bool) -> Bools:
    """Rows of which a sample tells something: not of what is mostly zeros, of which edges of graphs
    are a part.
    """
    tensors = side.tensors
    sized = (tensors.size >= FEWEST) & (tensors.size <= MOST)
    known = tensors.kept | tensors.sampled if values else tensors.sampled
    floats: Bools = (tensors.min_int == ABSENT) & known & sized
    return floats & ~vague(side) & (2 * tensors.zero < tensors.size)
