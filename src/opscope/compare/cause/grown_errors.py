# SPDX-License-Identifier: Apache-2.0
"""Whether two programs part only because rounding grew from call to call until it could be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.compare.side.call_rows import inputs_of, outputs_of

if TYPE_CHECKING:
    from opscope.arrays import Bools, Floats
    from opscope.compare.side.columns import Side

STEEPEST = 8.0  # times by which an operator that is right may make rounding larger


def grown(side: Side, call: int, meetings: tuple[Floats, Floats], unmet: Bools) -> bool:
    """Whether a call that reads what agrees with something of the other side, and makes what does
    not, makes little more of a difference than its inputs have; not where these are of a coarser
    type. meetings are errors and limits of the side's rows, unmet what is told to agree with none.
    """
    error, limit = meetings
    read = inputs_of(side, call)
    made = [row for row in outputs_of(side, call) if unmet[row]]
    if not made or any(unmet[row] for row in read):
        return False
    finest = min(limit[row] for row in made)
    before = max((error[row] for row in read if limit[row] <= finest), default=0.0)
    return bool(max(error[row] for row in made) < STEEPEST * before)
