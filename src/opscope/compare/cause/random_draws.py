# SPDX-License-Identifier: Apache-2.0
"""Random numbers of one run beside those of another: one draw more on one side and all that is
drawn after it differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.pair.tensors import SHAPE
from opscope.operators.catalogue import traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side


class Draws:
    """Draws from the default generator that only one side made; default flags all of the
    target's.
    """

    def __init__(self, pairing: Pairing) -> None:
        self._sides = pairing.target.calls, pairing.golden.calls
        self.default = draws_of(pairing.target)
        theirs = draws_of(pairing.golden)
        rows = pairing.rows
        other = rows.target_call[(rows.status == SHAPE) & rows.output]
        self._resized = np.unique(other[self.default[other]]) if len(self.default) else other
        self._alone = tuple(
            np.flatnonzero(flags & side.calls.leaf & (match < 0))
            for flags, side, match in (
                (self.default, pairing.target, pairing.match.target),
                (theirs, pairing.golden, pairing.match.golden),
            )
        )

    def before(self, target: int, golden: int) -> tuple[int, int]:
        """The first draw that only the target made before a matched one, and the first that only
        golden made; NONE where there is none.
        """
        firsts = [self._first(side, call) for side, call in ((0, target), (1, golden))]
        return firsts[0], firsts[1]

    def resized(self, target: int) -> bool:
        """Whether both sides drew before, but not as many numbers: the finding is what had another
        shape.
        """
        calls = self._sides[0]
        return bool(
            (
                (self._resized < target) & (calls.process[self._resized] == calls.process[target])
            ).any()
        )

    def _first(self, side: int, call: int) -> int:
        calls, alone = self._sides[side], self._alone[side]
        earlier = alone[(alone < call) & (calls.process[alone] == calls.process[call])]
        return int(earlier[0]) if len(earlier) else NONE


def draws_of(side: Side) -> Bools:
    """Calls that draw from the default generator; those that were given one of their own have an
    overload that says so.
    """
    return side.which(side.calls.op, lambda op: traits_of(op).random and "generator" not in op)
