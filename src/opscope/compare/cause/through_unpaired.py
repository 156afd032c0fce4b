# SPDX-License-Identifier: Apache-2.0
"""Calls that one side alone runs: those through which a tensor came, and the one of them that is to
be named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.side.call_rows import inputs_of, outputs_of
from opscope.operators.catalogue import traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.compare.pair.pairing import Pairing

MAX_WALK = 200_000


class Lonely:
    """Calls without a partner in a pairing; target says of which side a call is."""

    def __init__(self, pairing: Pairing) -> None:
        self._between = pairing.between is not None
        self._sides = {
            True: (pairing.target, pairing.flows[0], pairing.match.target),
            False: (pairing.golden, pairing.flows[1], pairing.match.golden),
        }
        self._producers: dict[bool, dict[int, list[int]]] = {True: {}, False: {}}

    def above(self, start: int, *, target: bool) -> tuple[set[int], set[int]]:
        """Calls without a partner through which a tensor of the call start came, and the target's
        calls of those that fed them.
        """
        _, _, match = self._sides[target]
        waiting, passed, given = [start], set[int](), set[int]()
        while waiting and len(passed) < MAX_WALK:
            call = waiting.pop()
            if call < 0 or call in passed:
                continue
            if match[call] >= 0:
                given.add(call if target else int(match[call]))
                continue
            passed.add(call)
            waiting.extend(self.inputs_of(call, target=target))
        return passed, given

    def foremost(self, calls: set[int], *, target: bool) -> int:
        """Of calls without a partner the first that computes with what both sides have; views and
        constants tell nobody anything.
        """
        side, _, match = self._sides[target]
        ordered = sorted(calls)
        words = dict(
            zip(ordered, side.texts(side.calls.op[np.array(ordered, dtype=np.int64)]), strict=True)
        )
        computing = [call for call in ordered if not traits_of(words[call]).idle]

        def fed(call: int) -> bool:
            return any(
                producer >= 0 and match[producer] >= 0
                for producer in self.inputs_of(call, target=target)
            )

        def shared(call: int) -> bool:
            return fed(call) or any(
                producer < 0 for producer in self.inputs_of(call, target=target)
            )

        first = next(filter(shared, computing), computing[0] if computing else ordered[0])
        if not self._between:
            return first
        return next(
            filter(fed, computing), first
        )  # one framework may compute a constant that is written down in the other

    def first_before(self, call: int, *, target: bool) -> int:
        """The first call of one side before a call in its step and rank that has no partner and
        computes; NONE where there is none.
        """
        side, _, match = self._sides[target]
        calls = side.calls
        here = (calls.step[:call] == calls.step[call]) & (calls.rank[:call] == calls.rank[call])
        alone = np.flatnonzero(here & (match[:call] < 0) & calls.leaf[:call])
        words = side.texts(calls.op[alone])
        return next(
            (
                at
                for at, word in zip(alone.tolist(), words, strict=True)
                if not traits_of(word).idle
            ),
            NONE,
        )

    def computes(self, call: int, *, target: bool) -> bool:
        """Whether a call does more than view, convert or allocate."""
        side, _, _ = self._sides[target]
        return not traits_of(side.operator(call)).idle

    def written_over(self, call: int, mine: int, theirs: int) -> tuple[int, bool]:
        """A call of one side alone that wrote to what the other side's producer made, and whether
        it is the target's; NONE where none is.

        That is how x[i] = y looks in a dump that has no output of it. call is the target's, mine
        and theirs produced what it reads.
        """
        golden = int(self._sides[True][2][call])
        for target, at, made in ((True, call, theirs), (False, golden, mine)):
            match = self._sides[target][2]
            partner = int(self._sides[not target][2][made]) if made >= 0 else NONE
            for writer in range(partner + 1, at) if partner >= 0 else ():
                if (
                    match[writer] < 0
                    and partner in self.inputs_of(writer, target=target)
                    and self._writes_nothing(writer, target=target)
                ):
                    return writer, target
        return NONE, True

    def _writes_nothing(self, call: int, *, target: bool) -> bool:
        return not outputs_of(self._sides[target][0], call)

    def inputs_of(self, call: int, *, target: bool) -> list[int]:
        """The calls that produced what a call reads, NONE for what no recorded call did."""
        known = self._producers[target]
        if call not in known:
            side, flow, _ = self._sides[target]
            known[call] = flow.producer[inputs_of(side, call)].tolist()
        return known[call]
