# SPDX-License-Identifier: Apache-2.0
"""Graphs of torch.compile beside the same program without it: what goes into one agrees, and what
comes out agrees with nothing that the operators made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.origins import OTHERWISE, Cause
from opscope.compare.pair.meetings import Meetings, meet
from opscope.compare.pair.unpaired import half_compiled
from opscope.compare.side.columns import ABSENT, NONE
from opscope.operators.catalogue import traits_of
from opscope.operators.spelling import COMPILED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

AMPLIFIED = 16.0  # limits by which results may be apart of inputs that are apart by one at most
PARTED = "opscope run --check holds what is compiled against the operators it is made of"


def with_graphs(pairing: Pairing, causes: list[Cause]) -> list[Cause]:
    """The causes, from the first graph on in which a target that was compiled parts from golden,
    which was not: that graph, in place of graphs before it and of all that comes after.

    Graphs are not judged where golden draws random numbers that the target does not: compiled code
    draws others.
    """
    if pairing.between is not None or not half_compiled(pairing) or _draws_inside(pairing):
        return causes
    side = pairing.target
    graphs = side.which(side.calls.op, lambda op: op.startswith(COMPILED))
    call = _first_parted(pairing, graphs)
    if call is None:
        return causes
    kept = [cause for cause in causes if 0 <= cause.target < call and not graphs[cause.target]]
    return [*kept, Cause(OTHERWISE, call, NONE, sure=False, words=(PARTED,))]


def _draws_inside(pairing: Pairing) -> bool:
    side = pairing.golden
    random = side.which(side.calls.op, lambda op: traits_of(op).random)
    return bool((random & side.calls.leaf & (pairing.match.golden < 0)).any())


def _first_parted(pairing: Pairing, graphs: NDArray[np.bool_]) -> int | None:
    side, golden = pairing.target, pairing.golden
    if not graphs.any():
        return None
    mine = (graphs | side.calls.leaf)[side.tensors.call] & (side.tensors.nan >= 0)
    theirs = golden.calls.leaf[golden.tensors.call] & (golden.tensors.nan >= 0)
    meetings = meet(pairing, (np.flatnonzero(mine), np.flatnonzero(theirs)))
    unmet = meetings.unmet(0), meetings.unmet(0, AMPLIFIED)
    for call in np.flatnonzero(graphs).tolist():
        first, last = np.searchsorted(side.tensors.call, [call, call + 1]).tolist()
        rows = np.arange(first, last)
        given, made = rows[~side.tensors.output[rows]], rows[side.tensors.output[rows]]
        if not unmet[0][given].any() and unmet[1][_told(pairing, meetings, given, made)].any():
            return call
    return None


def _told(
    pairing: Pairing, meetings: Meetings, given: NDArray[np.int64], made: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The results of a graph that its operators would make too, and that tell.

    Left out are what it writes in place, which operators may write in parts that nobody reads
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
