# SPDX-License-Identifier: Apache-2.0
"""Ranks of one run beside each other: they only learn of each other in collectives, which all of
them meet in the same order.

So the number of collectives that a rank has met is a clock that all ranks share: a call can have
been reached from another rank only by what stands there before the same number. The time of day
says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.judge.operators import is_collective
from opscope.run.hashes import distinct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opscope.arrays import Bools, Ints
    from opscope.compare.side.columns import Side

Place = tuple[int, str, int]  # of a collective: step, operator, its number among these there


class Collectives:
    """The collectives of a side: flags by call, and for each call how many its rank has met before
    it.
    """

    def __init__(self, side: Side) -> None:
        self._side, self._calls = side, side.calls
        self.flags = side.which(side.calls.op, is_collective) | side.in_phase("communication")
        self.before = self._met(self.flags & side.calls.leaf)

    def _met(self, flags: Bools) -> Ints:
        total: Ints = np.cumsum(flags) - flags
        for rank in distinct(self._calls.rank).tolist():
            own = self._calls.rank == rank
            total[own] -= total[own][0]
        return total

    def partners(self, call: int) -> dict[int, int]:
        """The same collective on every other rank, by rank: the one of its operator with the same
        number within the step.
        """
        rank, step = int(self._calls.rank[call]), int(self._calls.step[call])
        number = self._number(call)
        partners = {}
        for other in distinct(self._calls.rank).tolist():
            met = self._alike(call, other, step) if other != rank else np.empty(0, dtype=np.int64)
            if len(met) > number:
                partners[other] = int(met[number])
        return partners

    def place(self, call: int) -> Place:
        """Where a collective stands, in words that every rank of the run has for it."""
        op = self._side.words.get(int(self._calls.op[call]), "")
        return int(self._calls.step[call]), op, self._number(call)

    def first_of_each_rank(self, calls: Iterable[int]) -> frozenset[Place]:
        """Places of those collectives of these calls that stand in the first step that their rank
        has of them.
        """
        chosen = np.array([call for call in calls if self.flags[call]], dtype=np.int64)
        ranks, steps = self._calls.rank[chosen], self._calls.step[chosen]
        first = {rank: steps[ranks == rank].min() for rank in distinct(ranks).tolist()}
        return frozenset(
            self.place(call)
            for call, rank, step in zip(chosen.tolist(), ranks.tolist(), steps, strict=True)
            if step == first[rank]
        )

    def _number(self, call: int) -> int:
        rank, step = int(self._calls.rank[call]), int(self._calls.step[call])
        return int(np.count_nonzero(self._alike(call, rank, step) < call))

    def _alike(self, call: int, rank: int, step: int) -> Ints:
        calls = self._calls
        return np.flatnonzero(
            (calls.rank == rank) & (calls.step == step) & (calls.op == calls.op[call]) & calls.leaf
        )
