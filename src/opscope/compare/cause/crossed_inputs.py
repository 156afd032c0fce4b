# SPDX-License-Identifier: Apache-2.0
"""Products that read what golden's read, but in each other's place: a query where the key belongs.

What comes of such a product may be golden's, turned: statistics, which know no order, part only
further on, where something is done to some of its elements.
"""

from __future__ import annotations

from itertools import permutations, product
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.pair.tensors import statistic_error
from opscope.compare.side.call_rows import given_to
from opscope.compare.side.conditions import PRODUCT, error_kind
from opscope.operators.catalogue import family, traits_of

if TYPE_CHECKING:
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

MAX_HOPS = 3  # calls that compute between a product and where its result is found to be another


def crossed(
    pairing: Pairing, meetings: Meetings, starts: tuple[int, int]
) -> tuple[int, int] | None:
    """Two calls of which inputs are in each other's place: the starts of both sides, where these
    are of one operator, or products next above them or above what they meet on the other side.
    """
    sides = pairing.target, pairing.golden
    ops = [family(side.operator(call)) for side, call in zip(sides, starts, strict=True)]
    if ops[0] == ops[1] and _swapped(pairing, meetings, starts):
        return starts
    above = []
    for number, side in enumerate(sides):
        met = [
            int(meetings.partner[1 - number][row])
            for row in given_to(sides[1 - number], starts[1 - number])
        ]
        made = [int(pairing.flows[number].producer[row]) for row in met if row >= 0]
        made += [int(side.tensors.call[row]) for row in met if row >= 0]
        above.append(_products(side, pairing.flows[number], [starts[number], *made]))
    return next(
        (
            (mine, theirs)
            for mine, theirs in product(*above)
            if _swapped(pairing, meetings, (mine, theirs))
        ),
        None,
    )


def _products(side: Side, flow: Flow, starts: list[int]) -> list[int]:
    """The products that are among calls, or that these read through few calls that compute: of the
    phase of the first, since what is done to gradients has no fault of theirs.
    """
    products, seen, waiting = set[int](), set[int](), [(start, 0) for start in starts]
    phase = side.calls.phase
    while waiting:
        call, hops = waiting.pop(0)
        if call < 0 or call in seen or hops > MAX_HOPS or phase[call] != phase[starts[0]]:
            continue
        seen.add(call)
        op = side.operator(call)
        if error_kind(op) == PRODUCT:
            products.add(call)
            continue
        waiting.extend(
            (int(flow.producer[row]), hops + (not traits_of(op).idle))
            for row in given_to(side, call)
        )
    return sorted(products)


def _swapped(pairing: Pairing, meetings: Meetings, calls: tuple[int, int]) -> bool:
    target, golden = pairing.target, pairing.golden
    mine, theirs = given_to(target, calls[0]), given_to(golden, calls[1])

    def agree(i: int, j: int) -> bool:
        row, other = np.array([mine[i]]), np.array([theirs[j]])
        if target.tensors.size[mine[i]] != golden.tensors.size[theirs[j]]:
            return False
        error = statistic_error(target.tensors, golden.tensors, row, other)
        return bool(error[0] <= meetings.limit[0][mine[i]])

    shared = range(min(len(mine), len(theirs)))
    return any(agree(i, j) and agree(j, i) and not agree(i, i) for i, j in permutations(shared, 2))
