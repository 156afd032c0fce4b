# SPDX-License-Identifier: Apache-2.0
"""Products that read what golden's read, but in each other's place: a query where the key belongs;
and tensors that are joined in another order.

What comes of them may be golden's, turned: statistics, which know no order, part only further on,
where something is done to some of its elements.
"""

from __future__ import annotations

from itertools import permutations, product
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.pair.tensors import statistic_error
from opscope.compare.side.call_rows import given_to, inputs_of
from opscope.compare.side.conditions import PRODUCT, error_kind
from opscope.operators.catalogue import family, traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

MAX_HOPS = 3  # calls that compute between a product and where its result is found to be another
MAX_CALLS = 64  # between what is joined and what reads it
JOINED = "puts together what golden does, in another order"


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


def joined_otherwise(
    pairing: Pairing, meetings: Meetings, starts: tuple[int, int]
) -> tuple[int, int] | None:
    """The calls of either side that join tensors, each in the other's place, of which the starts
    read what is made without products: of one operator, and what they read agrees.
    """
    above = [
        _joints(side, flow, start)
        for side, flow, start in zip(
            (pairing.target, pairing.golden), pairing.flows, starts, strict=True
        )
    ]
    return next(
        (
            (mine, theirs)
            for mine, theirs in product(*above)
            if _swapped(pairing, meetings, (mine, theirs))
        ),
        None,
    )


def _joints(side: Side, flow: Flow, start: int) -> list[int]:
    """The calls that put several tensors together, from which a call reads through no product."""
    joints, seen, waiting = list[int](), {start}, [start]
    while waiting and len(seen) < MAX_CALLS:
        call = waiting.pop(0)
        for made in {int(flow.producer[row]) for row in given_to(side, call)} - {NONE, *seen}:
            traits = traits_of(side.operator(made))
            seen.add(made)
            if traits.moves and len(given_to(side, made)) > 1:
                joints.append(made)
            if error_kind(side.operator(made)) != PRODUCT:
                waiting.append(made)
    return joints


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


def reads_alike(pairing: Pairing, meetings: Meetings, calls: tuple[int, int]) -> bool:
    """Whether all that two calls read agrees, one after the other."""
    mine, theirs = inputs_of(pairing.target, calls[0]), inputs_of(pairing.golden, calls[1])
    return len(mine) == len(theirs) and all(
        _agree(pairing, meetings, row, other) for row, other in zip(mine, theirs, strict=True)
    )


def _swapped(pairing: Pairing, meetings: Meetings, calls: tuple[int, int]) -> bool:
    mine, theirs = given_to(pairing.target, calls[0]), given_to(pairing.golden, calls[1])

    def agree(i: int, j: int) -> bool:
        return _agree(pairing, meetings, mine[i], theirs[j])

    shared = range(min(len(mine), len(theirs)))
    return any(agree(i, j) and agree(j, i) and not agree(i, i) for i, j in permutations(shared, 2))


def _agree(pairing: Pairing, meetings: Meetings, row: int, other: int) -> bool:
    """Whether statistics of two rows are as near as those of what meets."""
    target, golden = pairing.target.tensors, pairing.golden.tensors
    if target.size[row] != golden.size[other]:
        return False
    error = statistic_error(target, golden, np.array([row]), np.array([other]))
    return bool(error[0] <= meetings.limit[0][row])
