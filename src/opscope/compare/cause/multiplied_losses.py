# SPDX-License-Identifier: Apache-2.0
"""Losses that are everywhere the same multiple of the other side's: one divides the loss of a part
of a batch, the other its gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.results import losses_beside
from opscope.compare.side.call_rows import places_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opscope.arrays import Bools
    from opscope.compare.cause.trained_states import Apart
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing

LEAST = 2  # losses of which one ratio is no chance where nothing else is apart, whatever it is
SAME = 1e-5  # by which their ratios may be apart
CLOSE = 0.1  # of such a ratio, by which parameters may move otherwise


def without_multiples(
    pairing: Pairing,
    meetings: Meetings,
    unmet: tuple[Bools, Bools],
    results: list[Apart],
    sound: Mapping[Place, float],
) -> list[Apart]:
    """Results that are apart, but for such losses where what is trained is sound
    (TrainedStates.sound), and does not move that many times as far.
    """
    if not any(place in sound for place, _, _ in results):
        return results
    multiples = _multiples(pairing, meetings, unmet, sound)
    return [
        (place, stage, rows)
        for place, stage, rows in results
        if place not in sound or not all(multiples[number] >= {*rows[number]} for number in (0, 1))
    ]


def _multiples(
    pairing: Pairing, meetings: Meetings, unmet: tuple[Bools, Bools], sound: Mapping[Place, float]
) -> tuple[frozenset[int], frozenset[int]]:
    """The losses of either side at these places, if all are one multiple of the other's."""
    beside = losses_beside(pairing, meetings, unmet)
    mine = np.array(sorted(beside[0]), dtype=np.int64)
    mine = mine[[place in sound for place in places_of(pairing.target, mine)]]
    theirs = np.array([beside[0][row][0] for row in mine.tolist()], dtype=np.int64)
    sizes = [
        side.tensors.l2norm[rows]
        for side, rows in ((pairing.target, mine), (pairing.golden, theirs))
    ]
    if not len(mine) or not all((size > 0).all() for size in sizes):
        return frozenset(), frozenset()
    ratio = sizes[0] / sizes[1]
    one = bool(np.isfinite(ratio).all()) and np.ptp(ratio) <= SAME * ratio.max()
    chance = len(mine) < LEAST or any(times != 1 for times in sound.values())
    if not one or (chance and not _counts(float(ratio[0]))):
        return frozenset(), frozenset()
    if any(times != 1 and abs(times / ratio[0] - 1) <= CLOSE for times in sound.values()):
        return frozenset(), frozenset()  # the multiple that parameters move is that of the loss
    return frozenset(mine.tolist()), frozenset(theirs.tolist())


def _counts(ratio: float) -> bool:
    """Whether a ratio is a whole number, or one over such."""
    larger = max(ratio, 1 / ratio)
    return abs(larger - round(larger)) <= SAME * larger
