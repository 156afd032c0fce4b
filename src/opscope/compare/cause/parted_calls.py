# SPDX-License-Identifier: Apache-2.0
"""Calls that read what golden read or made, and make what it made nowhere: graphs that were
compiled, whose operators have other names and numbers there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.pair.meetings import Meetings, meet
from opscope.compare.side.columns import ABSENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

AMPLIFIED = 16.0  # limits by which results may be apart of inputs that are apart by one at most


def first_parted(pairing: Pairing, asked: NDArray[np.bool_]) -> int | None:
    """The first of the target's calls that are asked for which what goes in agrees with what
    golden's operators read or made, and a result with nothing of it; None where there is none.
    """
    side, golden = pairing.target, pairing.golden
    if not asked.any():
        return None
    mine = (asked | side.calls.leaf)[side.tensors.call] & (side.tensors.nan >= 0)
    theirs = golden.calls.leaf[golden.tensors.call] & (golden.tensors.nan >= 0)
    meetings = meet(pairing, (np.flatnonzero(mine), np.flatnonzero(theirs)))
    unmet = meetings.unmet(0), meetings.unmet(0, AMPLIFIED)
    for call in np.flatnonzero(asked).tolist():
        first, last = np.searchsorted(side.tensors.call, [call, call + 1]).tolist()
        rows = np.arange(first, last)
        given, made = rows[~side.tensors.output[rows]], rows[side.tensors.output[rows]]
        if not unmet[0][given].any() and unmet[1][_told(pairing, meetings, given, made)].any():
            return call
    return None


def _told(
    pairing: Pairing, meetings: Meetings, given: NDArray[np.int64], made: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The results of a call that golden's operators would make too, and that tell.

    Left out are what it writes in place, which those may write in parts that nobody reads
    whole; integers that come of other numbers, by which ties are broken; and what is rounding
    alone beside the largest of its results, or of what it is given where those are zeros.
    """
    side, golden = pairing.target, pairing.golden
    tensors, partner = side.tensors, meetings.partner[0]
    reach = _reach(side)
    written = np.isin(tensors.storage[made], tensors.storage[given])
    whole = tensors.min_int != ABSENT
    chosen = made[~written & (~whole[made] | bool(whole[given].all()))]
    largest = np.nanmax(np.r_[reach[made], 0.0]) or np.nanmax(np.r_[reach[given], 0.0])
    nearest = np.where(partner[chosen] >= 0, _reach(golden)[partner[chosen]], np.inf)
    unsound = tensors.nan[chosen] + tensors.pos_inf[chosen] + tensors.neg_inf[chosen] > 0
    tiny = np.fmax(reach[chosen], nearest) <= meetings.limit[0][chosen] * largest
    found: NDArray[np.int64] = chosen[unsound | ~tiny]
    return found


def _reach(side: Side) -> NDArray[np.float64]:
    """The largest magnitude of each row."""
    found: NDArray[np.float64] = np.fmax(np.abs(side.tensors.min), np.abs(side.tensors.max))
    return found
