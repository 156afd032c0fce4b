# SPDX-License-Identifier: Apache-2.0
"""Whether two programs part only because rounding grew from call to call until it could be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.start_pairs import one_family
from opscope.compare.pair.arguments import difference_of
from opscope.compare.pair.meetings import AGREEING, COARSEST, FINEST
from opscope.compare.pair.sketches import sketch
from opscope.compare.side.call_rows import inputs_of, outputs_of
from opscope.operators.catalogue import traits_of

if TYPE_CHECKING:
    from opscope.arrays import Bools, Floats
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

BURST = 50.0  # roundings of a coarse type, to which one call does not come
STEEPEST = 8.0  # times by which an operator that is right may make rounding larger


def grown(
    sides: tuple[Side, Side], starts: tuple[int, int], meetings: Meetings, told: tuple[Bools, Bools]
) -> bool:
    """Whether one of two calls, which reads what agrees with something of the other side and makes
    what does not, makes little more of a difference than its inputs have; not where these are of a
    coarser type. told are the rows that are known to agree with nothing.
    """
    return any(
        _grown(side, call, (meetings.error[number], meetings.limit[number]), told[number])
        for number, (side, call) in enumerate(zip(sides, starts, strict=True))
    )


def _grown(side: Side, call: int, apart: tuple[Floats, Floats], unmet: Bools) -> bool:
    error, limit = apart
    read = inputs_of(side, call)
    made = [row for row in outputs_of(side, call) if unmet[row]]
    if not made or any(unmet[row] for row in read):
        return False
    finest = min(limit[row] for row in made)
    reach = {row: sketch(side, [row]).reach for row in (*read, *made)}
    before = [(error[row], reach[row]) for row in read if error[row] <= limit[row] <= finest]
    most = max((relative for relative, _ in before), default=0.0)
    if max(error[row] for row in made) < STEEPEST * most:
        return True
    # Of numbers that are only handed on, without the largest, the rest is as far apart as it was.
    handed = traits_of(side.operator(call))
    absolute = max((relative * largest for relative, largest in before), default=0.0)
    kept = all(error[row] * reach[row] < absolute for row in made)
    return bool(kept and (handed.masks or handed.moves))


def bursts(
    pairing: Pairing, starts: tuple[int, int], meetings: Meetings, dim: tuple[Bools, Bools]
) -> bool:
    """Whether what either of two calls makes is further apart than roundings of a coarse type come
    to, of what is the same to those of float32 than its limit; or the two are called with other
    arguments. dim are the rows whose statistics tell nothing.
    """
    alike = min(starts) >= 0 and one_family(pairing, *starts)
    if alike and difference_of(pairing, *starts):
        return True
    sides, most = (pairing.target, pairing.golden), BURST * meetings.unit
    apart = [
        _apart_by(sides[number], call, meetings.error[number], dim[number])
        for number, call in enumerate(starts)
        if call >= 0
    ]
    return any(made > (COARSEST if read <= AGREEING * FINEST else most) for read, made in apart)


def _apart_by(side: Side, call: int, error: Floats, dim: Bools) -> tuple[float, float]:
    """How far what a call reads, and what it makes, is from the other side's, as far as statistics
    tell; inf of what it makes where they tell nothing.
    """
    read = [float(error[row]) for row in inputs_of(side, call)]
    made = [float(error[row]) for row in outputs_of(side, call) if not dim[row]]
    return max(read, default=np.inf), max(made, default=np.inf)
