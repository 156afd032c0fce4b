# SPDX-License-Identifier: Apache-2.0
"""Of the calls at which two programs may part, which of one side belongs to which of the other."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.side.call_rows import inputs_of, outputs_of
from opscope.compare.side.columns import ABSENT
from opscope.compare.side.lowering import world
from opscope.operators.catalogue import family, kin, traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools
    from opscope.compare.cause.walks import Walk
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.pair.parameters import Names

MAX_STARTS = 16
MAX_READERS = 2  # on either side, of what the other side's start reads


def one_family(pairing: Pairing, mine: int, theirs: int) -> bool:
    """Whether a call of the target and one of golden are of one operator, however it is spelt, in
    whichever world.
    """
    ops = pairing.target.operator(mine), pairing.golden.operator(theirs)
    across = world(ops[0]) != world(ops[1]) and kin(ops[0]) == kin(ops[1])
    return across or family(ops[0]) == family(ops[1])


class StartPairs:
    """What two starts have in common: what they read, by what meets and what does not.

    unmet, vague: rows of either side that meet nothing, and of which statistics tell nothing;
    names: parameters that both begin with, by the names of both.
    """

    def __init__(
        self,
        pairing: Pairing,
        meetings: Meetings,
        unmet: tuple[Bools, Bools],
        vague: tuple[Bools, Bools],
        names: list[Names],
    ) -> None:
        self._pairing, self._meetings, self._names = pairing, meetings, names
        self._sides = pairing.target, pairing.golden
        self._unmet, self._vague = unmet, vague

    def partners(self, walks: list[Walk], mine: list[int], theirs: list[int]) -> tuple[int, int]:
        """The starts that belong together: one operator of the same inputs, or two that are given
        something else from outside, else those with the most weight, of these those that share an
        input, of these those of which nothing agrees again, of these those that make other numbers
        than whole ones, the earliest; else the earliest that read what is nearest to each other.
        """
        if not mine or not theirs:
            return (mine or [NONE])[0], (theirs or [NONE])[0]
        ops = [
            [family(side.operator(call)) for call in calls]
            for side, calls in zip(self._sides, (mine, theirs), strict=True)
        ]
        best: tuple[tuple[int, ...], int, int] | None = None
        for i, start in enumerate(mine[:MAX_STARTS]):
            for j, partner in enumerate(theirs[:MAX_STARTS]):
                shared, whole = self.shared(start, partner)
                orders = zip(walks[0].order(start), walks[1].order(partner), strict=True)
                alike = (whole and ops[0][i] == ops[1][j]) or bool(
                    walks[0].outside(start) & walks[1].outside(partner)
                )
                apart, weight, lasting = map(sum, orders)
                order = alike, apart, weight, shared, lasting, self._numbers(start, partner)
                candidate = (*order, -i - j), start, partner
                best = candidate if best is None or candidate[0] > best[0] else best
        if best is not None and best[0][3]:
            return best[1], best[2]
        some = mine[:MAX_STARTS], theirs[:MAX_STARTS]
        near = next((pair for pair in product(*some) if self._near(*pair)), None)
        return near or self._of_an_update(*some) or (mine[0], theirs[0])

    def _near(self, mine: int, theirs: int) -> bool:
        """Whether what a call of golden reads is nearest to something that one of the target reads
        and that is apart.
        """
        apart = [row for row in inputs_of(self._sides[0], mine) if self._unmet[0][row]]
        nearest = self._meetings.partner[0][apart]
        state = self._pairing.flows[1].state
        read = state[inputs_of(self._sides[1], theirs)]
        return bool(np.isin(state[nearest[nearest >= 0]], read).any())

    def _of_an_update(self, mine: list[int], theirs: list[int]) -> tuple[int, int] | None:
        """The first start of a side, where that writes to a parameter, and the first of the other's
        that makes as many numbers; None where there is none.
        """
        sides = self._sides
        for number, (begun, others) in enumerate(((mine[0], theirs), (theirs[0], mine))):
            side, other = sides[number], sides[1 - number]
            written = [row for row in outputs_of(side, begun) if side.tensors.parameter[row]]
            sizes = {int(side.tensors.size[row]) for row in written}
            for partner in others:
                made = {int(other.tensors.size[row]) for row in outputs_of(other, partner)}
                if sizes & made:
                    return (begun, partner) if number == 0 else (partner, begun)
        return None

    def _numbers(self, *starts: int) -> int:
        """How many of two starts make numbers that are not whole: another choice, or a batch in
        another order, is where programs are written otherwise, too.
        """
        return sum(
            bool((side.tensors.min_int[outputs_of(side, call)] == ABSENT).all())
            for side, call in zip(self._sides, starts, strict=True)
        )

    def prepared_alike(self, walks: list[Walk], starts: list[list[int]]) -> tuple[int, int] | None:
        """Starts of either side that prepare one parameter, of which nothing agrees again, though
        what they are computed with is not one call on both; None where there are none.
        """
        preparing = [
            [call for call in some if walk.prepares(call)]
            for walk, some in zip(walks, starts, strict=True)
        ]
        for pair in product(*preparing):
            heads = [walk.head(call) for walk, call in zip(walks, pair, strict=True)]
            if any(heads[0] & {*names[0]} and heads[1] & {*names[1]} for names in self._names):
                return pair[0], pair[1]
        return None

    def readers_of(self, number: int, start: int) -> list[int]:
        """The first calls of a side that compute with what the other side's start reads."""
        side, flow = self._sides[number], self._pairing.flows[number]
        met = [
            int(self._meetings.partner[1 - number][row])
            for row in inputs_of(self._sides[1 - number], start)
            if not self._unmet[1 - number][row] and not self._vague[1 - number][row]
        ]
        states = flow.state[[row for row in met if row >= 0]]
        rows = np.flatnonzero(np.isin(flow.state, states) & ~side.tensors.output)
        calls = [
            call
            for call in dict.fromkeys(side.tensors.call[rows].tolist())
            if side.calls.leaf[call] and not traits_of(side.operator(call)).idle
        ]
        return calls[:MAX_READERS]

    def shared(self, mine: int, theirs: int) -> tuple[bool, bool]:
        """Whether a call of golden reads partners of what one of the target reads, or a part of
        them, and nothing else.
        """
        flows = self._pairing.flows
        read = [inputs_of(self._sides[0], mine), inputs_of(self._sides[1], theirs)]
        wholes = [
            {*rows, *flow.source_row[rows].tolist()} - {NONE}
            for flow, rows in zip(flows, read, strict=True)
        ]
        met = np.where(self._unmet[0], NONE, self._meetings.partner[0])
        state = flows[1].state
        partners = {int(state[met[row]]) if met[row] >= 0 else NONE for row in read[0]}
        whole = {int(state[met[row]]) for row in wholes[0] if met[row] >= 0}
        shared = bool(whole & set(state[[*wholes[1]]].tolist()))
        return shared, partners == set(state[read[1]].tolist())

    def comparable(self, *starts: int) -> bool:
        """Whether two starts are of one operator and make as much: what they make tells then that
        it is not the same.
        """
        sizes = [
            set(side.tensors.size[outputs_of(side, call)].tolist())
            for side, call in zip(self._sides, starts, strict=True)
        ]
        return one_family(self._pairing, *starts) and sizes[0] == sizes[1]

    def order(self, *starts: int) -> bool:
        """Whether either of two starts only puts data in order."""
        operators = (side.operator(call) for side, call in zip(self._sides, starts, strict=True))
        return any(traits.moves or traits.idle for traits in map(traits_of, operators))

    def shared_names(self, mine: set[int], theirs: set[int]) -> tuple[set[int], set[int]]:
        """Parameters that either side's start reads, by the names of both sides."""
        read = [
            names
            for names in self._names
            if mine.intersection(names[0]) or theirs.intersection(names[1])
        ]
        return (
            mine.union(*(names[0] for names in read)),
            theirs.union(*(names[1] for names in read)),
        )
