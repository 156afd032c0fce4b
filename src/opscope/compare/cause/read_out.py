# SPDX-License-Identifier: Apache-2.0
"""Numbers that two programs read out, where all that training shows agrees: an evaluation of an
average of the weights.

Metrics are nobody's cause, since each program has its own. But where both read out as many numbers
in every step, and most of them are the same one after the other, one that is not is told, if what
a model makes for it is apart on both sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.what_matters import PARAMETER
from opscope.compare.pair.tensors import statistic_error
from opscope.compare.side.call_rows import inputs_of
from opscope.compare.side.columns import ABSENT
from opscope.operators.catalogue import traits_of

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.cause.trained_states import Apart
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

MAX_ABOVE = 1000  # calls looked at above a number


def read_out_apart(
    pairing: Pairing, meetings: Meetings, unmet: tuple[Bools, Bools]
) -> Apart | None:
    """The first number that both sides read out and that is not the same, since what their models
    make is not; None where there is none, or where it may be another metric.

    unmet: rows of either side that meet nothing.
    """
    sides, flows = (pairing.target, pairing.golden), pairing.flows
    rows = [_read_out(side, flow) for side, flow in zip(sides, flows, strict=True)]
    places = [_places(side, some) for side, some in zip(sides, rows, strict=True)]
    if places[0] != places[1] or not len(rows[0]):
        return None
    error = statistic_error(sides[0].tensors, sides[1].tensors, *rows)
    differs = (error > meetings.limit[0][rows[0]]) & unmet[0][rows[0]] & unmet[1][rows[1]]
    if 2 * np.count_nonzero(differs) > len(differs):
        return None
    for at in np.flatnonzero(differs).tolist():
        pair = int(rows[0][at]), int(rows[1][at])
        columns = zip(sides, flows, pair, unmet, strict=True)
        if all(_by_a_model(side, flow, row, alone) for side, flow, row, alone in columns):
            return places[0][at], PARAMETER, ([pair[0]], [pair[1]])
    return None


def _read_out(side: Side, flow: Flow) -> Ints:
    """The rows that hold what a program reads out as a number and a model computed, in the order
    in which it does.
    """
    tensors, calls = side.tensors, side.calls
    makes = np.zeros(len(calls), dtype=np.bool_)
    makes[tensors.call[tensors.output]] = True
    single = (tensors.size == 1) & (tensors.min_int == ABSENT) & ~tensors.output
    read = flow.source_row[single & calls.leaf[tensors.call] & ~makes[tensors.call]]
    return np.array(
        [row for row in read[read >= 0].tolist() if _by_a_model(side, flow, row)], dtype=np.int64
    )


def _places(side: Side, rows: Ints) -> list[Place]:
    calls = side.tensors.call[rows]
    return list(zip(side.calls.rank[calls].tolist(), side.calls.step[calls].tolist(), strict=True))


def _by_a_model(side: Side, flow: Flow, row: int, through: Bools | None = None) -> bool:
    """Whether a product, as a model's layers are, is among what a number is computed from; through:
    by rows of these alone.
    """
    seen, waiting = set[int](), [int(side.tensors.call[row])]
    while waiting and len(seen) < MAX_ABOVE:
        call = waiting.pop()
        if call in seen:
            continue
        seen.add(call)
        if traits_of(side.operator(call)).contraction:
            return True
        read = [row for row in inputs_of(side, call) if through is None or through[row]]
        waiting.extend(above for above in flow.producer[read].tolist() if above >= 0)
    return False
