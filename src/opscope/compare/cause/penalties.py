# SPDX-License-Identifier: Apache-2.0
"""A penalty of the weights that one side adds to its loss, and that the other's optimizer works
into the gradients: squares of weights beside a weight decay.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.results import losses_met
from opscope.compare.cause.what_matters import FORWARD, GRADIENT
from opscope.compare.side.call_rows import handed_on, inputs_of
from opscope.operators.catalogue import family
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opscope.arrays import Bools
    from opscope.compare.cause.trained_states import Apart
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

MOST_ABOVE = 10_000  # calls that a penalty is computed by


def without_penalties(
    pairing: Pairing, meetings: Meetings, unmet: tuple[Bools, Bools], apart: list[Apart]
) -> list[Apart]:
    """What is apart but for losses that are the other side's and a penalty of the weights, in steps
    whose gradients are not apart: what the penalty is for is the same.
    """
    if all(stage != FORWARD for _, stage, _ in apart):
        return apart
    of_gradients = {place for place, stage, _ in apart if stage == GRADIENT}
    sides = [_Penalties(pairing, meetings, unmet, number) for number in (0, 1)]
    return [
        (place, stage, rows)
        for place, stage, rows in apart
        if stage != FORWARD
        or place in of_gradients
        or not all(
            side.penalised(row) for side, some in zip(sides, rows, strict=True) for row in some
        )
    ]


class _Penalties:
    """The losses of one side that hold those of the other."""

    def __init__(
        self, pairing: Pairing, meetings: Meetings, unmet: tuple[Bools, Bools], number: int
    ) -> None:
        sides = pairing.target, pairing.golden
        self._side, self._other = sides[number], sides[1 - number]
        self._source = pairing.flows[number].source_row
        self._met = ~unmet[number] & (meetings.partner[number] >= 0)
        self._losses = losses_met(pairing, meetings, unmet, number)

    @cached_property
    def _weights(self) -> set[tuple[int, float, float]]:
        rows = np.flatnonzero(self._other.tensors.parameter).tolist()
        return {_about(self._other, row) for row in rows}

    def penalised(self, row: int) -> bool:
        """Whether a row is a sum of a loss of the other side and of what is made of weights."""
        if self._side.tensors.size[row] != 1:
            return False
        addends = [*self._addends(row)]
        losses = [each for each in addends if self._losses[each]]
        rest = [each for each in addends if each not in losses]
        return len(losses) == 1 and bool(rest) and self._of_weights(rest)

    def _addends(self, row: int) -> Iterator[int]:
        """The rows of the numbers of which a row is the sum."""
        waiting, seen = [row], set[int]()
        while waiting:
            made = self._made(waiting.pop())
            call = int(self._side.tensors.call[made])
            handed = handed_on(self._side, call)
            adds = family(self._side.operator(call)) == "add" and not self._losses[made]
            if not self._side.tensors.output[made] or call in seen:
                yield made
            elif handed != NONE or adds:
                seen.add(call)
                waiting.extend(inputs_of(self._side, call) if adds else [handed])
            else:
                yield made

    def _made(self, row: int) -> int:
        """The row in which what is read was made; that itself where nobody made it."""
        made = int(self._source[row])
        return row if self._side.tensors.output[row] or made < 0 else made

    def _of_weights(self, rows: list[int]) -> bool:
        """Whether rows are computed of parameters, and of numbers that the program holds."""
        tensors, seen, waiting = self._side.tensors, set[int](), [*rows]
        while waiting and len(seen) < MOST_ABOVE:
            row = self._made(waiting.pop())
            call = int(tensors.call[row])
            if tensors.parameter[row] or tensors.constant[row] or self._is_weight(row):
                continue
            read = inputs_of(self._side, call)
            if not tensors.output[row] or (not read and tensors.size[row] > 1):
                return False
            if call not in seen:
                seen.add(call)
                waiting.extend(read)
        return not waiting

    def _is_weight(self, row: int) -> bool:
        """Whether a row holds what the other side has as a parameter, in whatever order."""
        return bool(self._met[row]) and _about(self._side, row) in self._weights


def _about(side: Side, row: int) -> tuple[int, float, float]:
    """What tells the content of a row from others, in whatever order it is."""
    tensors = side.tensors
    return int(tensors.size[row]), float(tensors.min[row]), float(tensors.max[row])
