# SPDX-License-Identifier: Apache-2.0
"""Gradients of a loss that holds a penalty of the weights, beside those to which the other side's
optimizer adds the weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.compare.side.call_rows import inputs_of, parameters_of
from opscope.operators.catalogue import family
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing


def decayed_alike(
    pairing: Pairing, meetings: Meetings, rows: tuple[int, int], share: float
) -> bool:
    """Whether the gradient of one side agrees with what an addition makes of the other's and of
    parameters, by so much of its limits. rows: of the target's and golden's gradient.
    """
    return any(
        meetings.error[number][row] <= share * meetings.limit[number][row]
        and meetings.partner[number][row] != NONE
        and _decayed(pairing, meetings, number, rows)
        for number, row in enumerate(rows)
    )


def _decayed(pairing: Pairing, meetings: Meetings, number: int, rows: tuple[int, int]) -> bool:
    side, state = (pairing.target, pairing.golden)[1 - number], pairing.flows[1 - number].state
    partner = int(meetings.partner[number][rows[number]])
    call = int(side.tensors.call[partner])
    added = family(side.operator(call)) == "add" and bool(parameters_of(side, call))
    return added and bool((state[inputs_of(side, call)] == state[rows[1 - number]]).any())
