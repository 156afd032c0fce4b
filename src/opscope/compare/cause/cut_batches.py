# SPDX-License-Identifier: Apache-2.0
"""Batches that one side cuts into parts: sums of their gradients; and losses, what these come to
and what computes them, where parts that are padded otherwise have nothing else that could be held
against the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.gradient_paths import calls_at
from opscope.compare.cause.partings import Parting
from opscope.compare.cause.results import losses_of
from opscope.compare.cause.what_matters import FORWARD, GRADIENT
from opscope.compare.pair.meetings import normed
from opscope.compare.side.call_rows import inputs_of
from opscope.compare.side.columns import ABSENT
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Floats, Ints
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

NEAR = 1e-5  # of a loss: what its parts come to may be off by so much
MOST_CALLS = 24  # of either side, that compute a loss outside of its modules
LOSSES = (
    "the losses of the step part; its batch is cut into other parts than golden's, so what its "
    "passes compute was not compared"
)
GRADIENTS = (
    "the gradients of the step part; its batch is cut into other parts than golden's, so what its "
    "passes compute was not compared"
)


def accumulates(
    sides: tuple[Side, Side], unmet: tuple[Bools, Bools], starts: tuple[int, int]
) -> bool:
    """Whether one of two calls is of a backward pass and reads nothing that meets the other side: a
    sum of gradients of parts of a batch.
    """
    for side, apart, call in zip(sides, unmet, starts, strict=True):
        read = inputs_of(side, call)
        backward = read and side.words.get(int(side.calls.phase[call])) == "backward"
        if backward and apart[read].all():
            return True
    return False


def apart_uncompared(pairing: Pairing, unmet: tuple[Bools, Bools], place: Place) -> Parting | None:
    """A step in which gradients part, if nothing that the models compute meets, as where parts are
    padded otherwise than the whole: what computes the last losses, or, where these come to the
    other side's, the backward passes.
    """
    sides = pairing.target, pairing.golden
    losses = [
        _losses_at(side, flow, place) for side, flow in zip(sides, pairing.flows, strict=True)
    ]
    met = any(_meets(side, apart, place) for side, apart in zip(sides, unmet, strict=True))
    if met or not all(map(len, losses)):
        return None
    if _come_to(*(side.tensors.mean[rows] for side, rows in zip(sides, losses, strict=True))):
        mine, theirs = (
            int(np.flatnonzero(calls_at(side, place) & side.in_phase("backward"))[0])
            for side in sides
        )
        return Parting(
            place, GRADIENT, (mine, theirs), ((mine,), (theirs,)), words=GRADIENTS, compared=False
        )
    mine, theirs = (
        int(side.tensors.call[rows[-1]]) for side, rows in zip(sides, losses, strict=True)
    )
    regions = (
        _computing(sides[0], pairing.flows[0], mine),
        _computing(sides[1], pairing.flows[1], theirs),
    )
    return Parting(place, FORWARD, (mine, theirs), regions, words=LOSSES, compared=False)


def _come_to(mine: Floats, theirs: Floats) -> bool:
    """Whether the losses of one side, or their mean, are those of the other together."""
    return any(
        bool(np.isclose(one, other, rtol=NEAR, atol=0.0))
        for one in (mine.sum(), mine.mean())
        for other in (theirs.sum(), theirs.mean())
    )


def _losses_at(side: Side, flow: Flow, place: Place) -> Ints:
    losses = losses_of(side, flow.source_row)
    rows: Ints = losses[calls_at(side, place)[side.tensors.call[losses]]]
    return rows


def _meets(side: Side, unmet: Bools, place: Place) -> bool:
    """Whether any numbers that modules make in the forward pass of a step meet the other side; of
    what norms leave, statistics tell next to nothing.
    """
    tensors, calls = side.tensors, side.calls
    inside = calls.leaf & (calls.parent >= 0) & side.in_phase("forward") & calls_at(side, place)
    made = tensors.output & inside[tensors.call] & ~tensors.parameter & (tensors.size > 1)
    made &= (tensors.min_int == ABSENT) & ~normed(side)
    return bool((made & ~unmet).any())


def _computing(side: Side, flow: Flow, loss: int) -> tuple[int, ...]:
    """The calls that compute a loss outside of modules, and those inside that give them what they
    compute with: what gradients may flow through.
    """
    tensors, found, ahead = side.tensors, [loss], [loss]
    while ahead and len(found) < MOST_CALLS:
        call = ahead.pop(0)
        if side.calls.parent[call] >= 0:
            continue
        read = inputs_of(side, call)
        rows = [
            row for row in read if tensors.min_int[row] == ABSENT and not tensors.parameter[row]
        ]
        new = sorted({int(flow.producer[row]) for row in rows} - {NONE, *found}, reverse=True)
        found += new
        ahead += new
    return tuple(sorted(found))
