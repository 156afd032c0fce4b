# SPDX-License-Identifier: Apache-2.0
"""Two programs of which one fills rows otherwise that no loss counts, as padding: where the rows
that both have part, too.

What agrees in some elements agrees in whole rows once a product with a weight has been made of it:
each of its rows depends on all of the row that is read. Where nothing agrees any more behind
operators that keep rows apart, these compute something else, whatever other rows hold. A loss makes
one number of all rows; that it is another one is the loss's own doing where the gradient that it
hands back agrees in no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.start_pairs import one_family
from opscope.compare.cause.what_matters import FORWARD
from opscope.compare.pair.samples import in_common
from opscope.compare.side.call_rows import (
    computes_nothing,
    given_to,
    inputs_of,
    outputs_of,
    parameters_of,
    weighs,
)
from opscope.operators.catalogue import traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools
    from opscope.compare.cause.partings import Parting
    from opscope.compare.cause.trained_states import Apart
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

MAX_CALLS = 64  # from what computes otherwise up to the product behind which rows agree


def parts_in_all_rows(
    pairing: Pairing,
    known: tuple[Meetings, Bools],
    partings: tuple[Parting, Parting],
    apart: list[Apart],
) -> bool:
    """Whether the later of two partings, before which tensors still agree in some rows, is why a
    result is another one, not the first. known: the meetings, and the rows of the target that
    meet so; apart: what matters and is apart.
    """
    first, later = partings
    meetings, rows = known
    unmet = meetings.unmet(0)
    side, start, marks = pairing.target, later.start[0], (rows, unmet)
    if min(later.start) < 0 or side.calls.phase[start] != side.calls.phase[0]:
        return False
    reads = bool(rows[inputs_of(side, start)].any())  # else it may be of labels
    before = all(map(int.__lt__, later.start, first.start))
    if before and not later.heals and one_family(pairing, *later.start):
        return True  # what the first reads agrees whole, but is nothing that computes from these
    products, between = _above(pairing, marks, start if reads else _first_result(side, apart))
    products = [call for call in products if call > first.start[0]]
    if not products:
        return False
    # what the other side does not compute by itself agrees with nothing, right or wrong
    alike = not computes_nothing(side.operator(start)) and one_family(pairing, *later.start)
    if reads and alike and all(_keeps_rows(side, call) for call in (start, *between)):
        return True
    gradients = [row for call in products for row in _gradients(side, call)]
    if not gradients or not unmet[gradients].all():
        return False
    return not any(_in_common(pairing, meetings, call) for call in products)


def _in_common(pairing: Pairing, meetings: Meetings, call: int) -> bool:
    """Whether the gradient of what a call makes has any element in common with that of what this
    meets: of few rows that agree a sample may hold one.
    """
    target, golden = pairing.target, pairing.golden
    partner = meetings.partner[0][outputs_of(target, call)]
    others = golden.tensors.call[partner[partner >= 0]].tolist()
    mine = _gradients(target, call)
    pairs = [(row, other) for row in mine for at in others for other in _gradients(golden, at)]
    if not pairs:
        return False
    rows = np.array(pairs, dtype=np.int64).T
    return bool(in_common((target, rows[0]), (golden, rows[1])).any())


def _first_result(side: Side, apart: list[Apart]) -> int:
    """The call that made the first result of the target that is apart."""
    ends = [rows[0][0] for _, stage, rows in apart if stage == FORWARD and rows[0]]
    return int(side.tensors.call[min(ends)]) if ends else NONE


def _above(pairing: Pairing, marks: tuple[Bools, Bools], start: int) -> tuple[list[int], list[int]]:
    """The products with weights whose results agree in some rows, from which a call computes, and
    the calls between.
    """
    side, flow, (rows, unmet) = pairing.target, pairing.flows[0], marks
    products, between, waiting, seen = list[int](), list[int](), [start], {start}
    while waiting and len(seen) < MAX_CALLS:
        for row in inputs_of(side, waiting.pop()):
            call = int(flow.producer[row])
            number = side.tensors.size[row] == 1  # as a sum of losses is, which is divided
            if not (rows[row] or number) or call < 0 or call in seen:
                continue
            seen.add(call)
            if number:
                waiting.append(call)
            elif weighs(side, call) and not unmet[given_to(side, call)].any():
                products.append(call)
            else:
                between.append(call)
                waiting.append(call)
    return products, between


def _keeps_rows(side: Side, call: int) -> bool:
    """Whether each row of what a call makes depends on one row of what it is given."""
    traits = traits_of(side.operator(call))
    normed = traits.tolerance == "norm" and bool(parameters_of(side, call))
    return traits.pointwise or traits.view or traits.idle or normed or weighs(side, call)


def _gradients(side: Side, call: int) -> list[int]:
    """The rows in which the gradient of what a call makes is read by its backward pass."""
    calls, tensors = side.calls, side.tensors
    backward = np.flatnonzero(
        (calls.forward == calls.index[call]) & (calls.process == calls.process[call]) & calls.leaf
    )
    size = max((int(tensors.size[row]) for row in outputs_of(side, call)), default=-1)
    return [
        row
        for other in backward.tolist()
        for row in given_to(side, other)
        if tensors.size[row] == size
    ][:1]
