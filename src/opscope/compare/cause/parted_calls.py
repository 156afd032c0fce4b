# SPDX-License-Identifier: Apache-2.0
"""Calls that read what golden read or made, and make what it made nowhere: graphs that were
compiled, whose operators have other names and numbers there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.pair.meetings import Meetings, meet
from opscope.compare.side.call_rows import rows_of
from opscope.compare.side.columns import ABSENT
from opscope.judge.families import tolerance_kind
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Floats, Ints
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

DEEPEST = 4  # calls through which rounding that is left alone is followed
ROUNDING = 1e-4  # of what was added up, below which a result may be rounding alone
MULTIPLYING = ("aten::mul", "aten::div")
AMPLIFIED = 16.0  # limits by which results may be apart of inputs that are apart by one at most


def first_parted(
    pairing: Pairing,
    asked: Bools,
    *,
    otherwise: Bools | None = None,
) -> int | None:
    """The first of the target's calls that are asked for which what goes in agrees with what
    golden's operators read or made, and a result with nothing of it; None where there is none.

    otherwise: calls of which it is known that a result is not golden's.
    """
    side, golden = pairing.target, pairing.golden
    if not asked.any():
        return None
    mine = (asked | side.calls.leaf)[side.tensors.call] & (side.tensors.nan >= 0)
    theirs = golden.calls.leaf[golden.tensors.call] & (golden.tensors.nan >= 0)
    meetings = meet(pairing, (np.flatnonzero(mine), np.flatnonzero(theirs)))
    unmet = meetings.unmet(0), meetings.unmet(0, AMPLIFIED)
    for call in np.flatnonzero(asked).tolist():
        rows = np.array(rows_of(side, call), dtype=np.int64)
        given, made = rows[~side.tensors.output[rows]], rows[side.tensors.output[rows]]
        if unmet[0][given].any():
            continue
        known = otherwise is not None and bool(otherwise[call])
        if known or unmet[1][_told(pairing, meetings, given, made)].any():
            return call
    return None


def _told(pairing: Pairing, meetings: Meetings, given: Ints, made: Ints) -> Ints:
    """The results of a call that golden's operators would make too, and that tell.

    Left out are what it writes in place, which those may write in parts that nobody reads
    whole; integers that come of other numbers, by which ties are broken; and what is rounding
    alone beside the largest of its results, or of what it is given where those are zeros, or of
    what golden's operator adds up.
    """
    side, golden = pairing.target, pairing.golden
    tensors, partner = side.tensors, meetings.partner[0]
    reach = reach_of(side)
    written = np.isin(tensors.storage[made], tensors.storage[given])
    whole = tensors.min_int != ABSENT
    chosen = made[~written & (~whole[made] | bool(whole[given].all()))]
    added = added_up(golden, pairing.flows[1])
    largest = np.nanmax(np.r_[reach[made], 0.0]) or np.nanmax(np.r_[reach[given], 0.0])
    nearest = np.where(partner[chosen] >= 0, reach_of(golden)[partner[chosen]], np.inf)
    unsound = tensors.nan[chosen] + tensors.pos_inf[chosen] + tensors.neg_inf[chosen] > 0
    own = np.where(golden.tensors.output, golden.tensors.call, pairing.flows[1].producer)
    maker = np.where(partner[chosen] >= 0, own[partner[chosen]], NONE)
    summed = np.where(maker >= 0, added[np.maximum(maker, 0)], 0.0)
    limit, reached = meetings.limit[0][chosen], np.fmax(reach[chosen], nearest)
    tiny = (reached <= limit * largest) | (reached <= AMPLIFIED * limit * summed)
    telling: Ints = chosen[unsound | ~tiny]
    return telling


def reach_of(side: Side) -> Floats:
    """The largest magnitude of each row."""
    reach: Floats = np.fmax(np.abs(side.tensors.min), np.abs(side.tensors.max))
    return reach


def added_up(side: Side, flow: Flow) -> Floats:
    """The largest magnitude that each call adds up, of which its result may leave rounding alone;
    what reads such rounding has it too. 0 of calls that only multiply, choose or move.
    """
    tensors = side.tensors
    adding = side.which(side.calls.op, _adds)
    most = np.zeros(len(side.calls))
    rows = np.flatnonzero(~tensors.output)
    owner, reach = tensors.call[rows], np.nan_to_num(reach_of(side)[rows], posinf=0.0)
    np.maximum.at(most, owner[adding[owner]], reach[adding[owner]])
    before = flow.producer[rows]
    for _ in range(DEEPEST):
        handed = np.where(before >= 0, most[np.maximum(before, 0)], 0.0)
        alone = reach <= ROUNDING * handed
        np.maximum.at(most, owner[alone], handed[alone])
    return most


def _adds(op: str) -> bool:
    name = op.partition(".")[0]
    return tolerance_kind(name) not in {"exact", "unjudged"} and not name.startswith(MULTIPLYING)
