# SPDX-License-Identifier: Apache-2.0
"""What two programs that train nothing have in common: numbers that both read out, and what layers
with the same weights are given.

One program may hand out logits where the other reads out scores, and a batch may be one call here
and a call for each of its texts there: such results tell nothing of one another.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.common_layers import layers_apart
from opscope.compare.cause.common_numbers import Number, numbers_in_common
from opscope.compare.cause.what_matters import FORWARD
from opscope.compare.side.call_rows import inputs_of
from opscope.operators.catalogue import traits_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opscope.arrays import Bools
    from opscope.compare.cause.trained_states import Apart
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing

    Flags = tuple[Bools, Bools]  # of the rows of either side

NEAR = 0.2  # of themselves, by which numbers are off that are one metric in both programs
MAX_ABOVE = 200  # calls by which a parameter is prepared
STEADY = 1e-4  # by which one metric is never so many times another


class Inferences:
    """What is compared beside what models hand out, or in its place.

    dim: rows of either side of which statistics tell nothing.
    """

    def __init__(self, pairing: Pairing, meetings: Meetings, dim: Flags) -> None:
        self._pairing, self._meetings, self._dim = pairing, meetings, dim

    @cached_property
    def numbers(self) -> list[Number] | None:
        """The numbers that models of both made and both read out; None where not as many."""
        return numbers_in_common(self._pairing, self._meetings)

    def apart(self, unmet: Flags, *, layers: bool) -> Iterator[Apart]:
        """Numbers that are not the same; where these tell nothing, what layers are given, if that
        is asked for.
        """
        if self.numbers is None and layers:
            yield from layers_apart(self._pairing, unmet, self._dim)
        for number in self.numbers or []:
            if not number.same and unmet[0][number.mine].all() and unmet[1][number.theirs].all():
                yield number.place, FORWARD, (number.mine, number.theirs)

    def may_be_metrics(self, starts: tuple[int, int], apart: list[Apart]) -> bool:
        """Whether what is apart are numbers that may be metrics that each program has of its own:
        no layer computes on from where they part, and they are far apart, or one so many times the
        other, as bits are of nats.
        """
        if not self.numbers or all(number.same for number in self.numbers):
            return False
        read = [(number.mine, number.theirs) for number in self.numbers]
        if any(stage == FORWARD and rows not in read for _, stage, rows in apart):
            return False
        times = np.array([number.times for number in self.numbers])
        steady = len(times) > 1 and np.ptp(times) <= STEADY
        near = bool((np.abs(times - 1) <= NEAR).all()) and not steady
        return not (near or all(map(self._goes_on, (0, 1), starts)))

    def _goes_on(self, number: int, start: int) -> bool:
        """Whether a side computes products of what comes of a call, and of parameters."""
        side = (self._pairing.target, self._pairing.golden)[number]
        flow, tensors, reached = self._pairing.flows[number], side.tensors, {start}
        if start < 0:
            return False
        first = int(np.searchsorted(tensors.call, start + 1))
        read = first + np.flatnonzero(
            ~tensors.output[first:] & side.calls.leaf[tensors.call[first:]]
        )
        for row, call in zip(read.tolist(), tensors.call[read].tolist(), strict=True):
            if int(flow.producer[row]) not in reached or call in reached:
                continue
            reached.add(call)
            product = traits_of(side.operator(call)).contraction
            if product and self._of_parameters(number, inputs_of(side, call), reached):
                return True
        return False

    def _of_parameters(self, number: int, rows: list[int], reached: set[int]) -> bool:
        """Whether any of some rows is a parameter, or computed of one, and not of calls that were
        reached.
        """
        side = (self._pairing.target, self._pairing.golden)[number]
        flow, waiting, seen = self._pairing.flows[number], [*rows], set[int]()
        while waiting and len(seen) < MAX_ABOVE:
            row = waiting.pop()
            if side.tensors.parameter[row]:
                return True
            producer = int(flow.producer[row])
            if producer >= 0 and producer not in reached and producer not in seen:
                seen.add(producer)
                waiting.extend(inputs_of(side, producer))
        return False
