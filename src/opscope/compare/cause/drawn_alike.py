# SPDX-License-Identifier: Apache-2.0
"""Ranks that draw the same random numbers for what is not the same.

Ranks that hold one activation have to drop the same of it; of different parts of a batch, or of
different heads, the whole has masks that are independent, and one seed on all ranks gives each part
the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opscope.compare.pair.wholes import distance
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opscope.compare.pair.wholes import Wholes

ROUNDED_OTHERWISE = 1e-2  # of the scale: what two ranks hold of one activation is nearer
MOST_STEPS = 4  # calls that a mask passes, scaled in place, until it meets what it is for


class DrawnAlike(NamedTuple):
    """A call that draws what a rank before it drew, and the two ranks."""

    call: int
    ranks: tuple[int, int]

    @property
    def words(self) -> tuple[str, ...]:
        """What a finding says of it."""
        ranks = " and ".join(map(str, self.ranks))
        return (f"ranks {ranks} draw the same random numbers for what is not the same on them",)


def drawn_alike(wholes: Wholes, calls: Iterable[int]) -> DrawnAlike | None:
    """The first of the calls of one place that draws what another rank drew for something else."""
    before: dict[int, list[tuple[int, int]]] = {}
    for call in calls:
        row = next(iter(wholes.outputs(call)), NONE)
        if row < 0 or not wholes.flow.whole[row] or wholes.side.tensors.size[row] < 2:
            continue
        rank, beside = int(wholes.side.calls.rank[call]), _beside(wholes, row)
        others = before.setdefault(int(wholes.flow.state[row]), [])
        for other, met in others:
            if other != rank and _unlike(wholes, beside, met):
                return DrawnAlike(call, (other, rank))
        others.append((rank, beside))
    return None


def _unlike(wholes: Wholes, row: int, other: int) -> bool:
    """Whether two rows hold what is not the same, beyond how ranks may round one activation."""
    if row < 0 or other < 0 or wholes.flow.state[row] == wholes.flow.state[other]:
        return False
    return distance(wholes.of([row]), wholes.of([other])) > ROUNDED_OTHERWISE


def _beside(wholes: Wholes, row: int) -> int:
    """The row of what a drawn tensor first meets in a call; NONE where it meets nothing."""
    tensors, flow = wholes.side.tensors, wholes.flow
    for _ in range(MOST_STEPS):
        readers = np.flatnonzero(flow.source_row == row)
        if not len(readers):
            return NONE
        call = int(tensors.call[readers[0]])
        for other in wholes.inputs(call):
            if tensors.size[other] >= tensors.size[row] and flow.source_row[other] != row:
                return other
        made = wholes.outputs(call)
        if not made:
            return NONE
        row = made[0]
    return NONE
