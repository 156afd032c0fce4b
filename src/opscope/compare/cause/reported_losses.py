# SPDX-License-Identifier: Apache-2.0
"""Losses that one side computes for the record alone, and goes back from something else: from a
surrogate of the same gradients, or with gradients that it gives itself.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.results import losses_of
from opscope.compare.side.call_rows import places_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opscope.arrays import Floats
    from opscope.compare.cause.trained_states import Apart
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side


def without_reported(
    pairing: Pairing, meetings: Meetings, results: list[Apart], sound: Mapping[Place, float]
) -> list[Apart]:
    """Results that are apart, but for losses where what is trained is sound (TrainedStates.sound)
    and the other side computes the last of one side's, in the same step or behind its update; and
    for what a side shows in the place of losses.
    """
    if not any(sound.get(place) == 1 for place, _, _ in results):
        return results
    sides = pairing.target, pairing.golden
    losses = [
        losses_of(side, flow.source_row) for side, flow in zip(sides, pairing.flows, strict=True)
    ]
    numbers = [_Numbers(side, limit) for side, limit in zip(sides, meetings.limit, strict=True)]
    last = [
        dict(zip(places_of(side, rows), rows.tolist(), strict=True))
        for side, rows in zip(sides, losses, strict=True)
    ]
    reported = {
        place
        for number, rows in enumerate(last)
        for place, row in rows.items()
        if sound.get(place) == 1 and numbers[1 - number].hold(sides[number], place, row)
    }
    return [
        (place, stage, rows)
        for place, stage, rows in results
        if place not in reported
        or not all(
            not len(known) or {*own} <= {*known.tolist()}
            for known, own in zip(losses, rows, strict=True)
        )
    ]


class _Numbers:
    """The single numbers that a side computes, by rank and step."""

    def __init__(self, side: Side, limit: Floats) -> None:
        tensors = side.tensors
        self._side, self._limit = side, limit
        rows = np.flatnonzero(
            tensors.output
            & side.calls.leaf[tensors.call]
            & (tensors.size == 1)
            & np.isfinite(tensors.l2norm)
            & ~tensors.parameter
        )
        self._at: dict[Place, list[int]] = defaultdict(list)
        for place, row in zip(places_of(side, rows), rows.tolist(), strict=True):
            self._at[place].append(row)

    def hold(self, other: Side, place: Place, row: int) -> bool:
        """Whether a number of the other side is among them, in its step or the next."""
        rows = self._at[place] + self._at[place[0], place[1] + 1]
        value, values = other.tensors.mean[row], self._side.tensors.mean[rows]
        return bool((np.abs(values - value) <= self._limit[rows] * np.abs(values)).any())
