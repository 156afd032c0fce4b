# SPDX-License-Identifier: Apache-2.0
"""A loss that one side scales before it goes back from it, as training in narrow types does: what
its backward pass computes is compared without the scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.cause.results import losses_of, read_out
from opscope.compare.pair.meetings import AGREEING, coarse_unit, multiplied
from opscope.compare.side.call_rows import inputs_of, places_of
from opscope.compare.side.contents import bears_identities
from opscope.operators.catalogue import kin

if TYPE_CHECKING:
    from opscope.arrays import Ints
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

SCALING = ("mul", "div")


def without_scales(pairing: Pairing) -> Pairing:
    """A pairing of which no loss is scaled: one that is a multiple of a number that the program
    reads out, and that is a loss of the other side, is that number, and the gradients are divided
    by as much.
    """
    sides, flows = (pairing.target, pairing.golden), pairing.flows
    losses = [losses_of(side, flow.source_row) for side, flow in zip(sides, flows, strict=True)]
    target, golden = (_unscaled(pairing, number, losses) for number in (0, 1))
    return msgspec.structs.replace(pairing, target=target, golden=golden)


def _unscaled(pairing: Pairing, number: int, losses: list[Ints]) -> Side:
    side = (pairing.target, pairing.golden)[number]
    scales = _scales(pairing, number, losses)
    if not scales:
        return side
    calls, tensors, state = side.calls, side.tensors, pairing.flows[number].state
    backward = side.in_phase("backward")
    of_loss = np.isin(state, state[[*scales]])
    by_place = {
        rank << 32 | step: scale
        for (rank, step), scale in zip(
            places_of(side, np.array([*scales], dtype=np.int64)), scales.values(), strict=True
        )
    }
    known = np.array(sorted(by_place))
    factors = np.array([1 / by_place[place] for place in known.tolist()])
    place = (calls.rank.astype(np.int64) << 32 | calls.step)[tensors.call]
    at = np.minimum(np.searchsorted(known, place), len(known) - 1)
    scaled = (known[at] == place) & (backward[tensors.call] | of_loss)
    return multiplied(side, np.where(scaled, factors[at], 1.0))


def _scales(pairing: Pairing, number: int, losses: list[Ints]) -> dict[int, float]:
    """How many times a loss of the other side each loss of a side is that is scaled, by its row."""
    sides, flows = (pairing.target, pairing.golden), pairing.flows
    side, other = sides[number], sides[1 - number]
    read = read_out(side)
    shown = np.isin(flows[number].state, flows[number].state[read])
    silent = not len(read) or not bears_identities(side)  # dumps do not show what is read out
    theirs: dict[Place, list[float]] = {}
    for place, row in zip(places_of(other, losses[1 - number]), losses[1 - number], strict=True):
        theirs.setdefault(place, []).append(float(other.tensors.max[row]))
    limit, scales = AGREEING * coarse_unit(sides), {}
    hidden: Ints = losses[number][~shown[losses[number]] | silent]
    for place, row in zip(places_of(side, hidden), hidden.tolist(), strict=True):
        call = int(side.tensors.call[row])
        if kin(side.operator(call)) not in SCALING:
            continue
        for source in inputs_of(side, call):
            value = float(side.tensors.max[source])
            same = any(abs(value - known) <= limit * abs(known) for known in theirs.get(place, []))
            if (shown[source] or silent) and side.tensors.size[source] == 1 and same and value:
                scales[row] = float(side.tensors.max[row]) / value
    return scales
