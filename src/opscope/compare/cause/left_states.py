# SPDX-License-Identifier: Apache-2.0
"""What models leave behind for later: running statistics, which nobody reads before the model is
evaluated or saved.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.pair.levels import within_modules
from opscope.compare.pair.tensors import statistic_error
from opscope.compare.side.call_rows import given_to, outputs_of, places_of
from opscope.operators.catalogue import family
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side


def unlike_before(
    pairing: Pairing, unmet: tuple[Bools, Bools], dim: tuple[Bools, Bools], place: Place
) -> tuple[Place, list[int], list[int]] | None:
    """The first rank and step before a place in which models of both sides leave states behind, of
    as many elements, that meet nothing on the other, and the first such row of either side.

    unmet, dim: rows that meet nothing, and of which statistics tell nothing, of either side.
    """
    sides = pairing.target, pairing.golden
    rows = [
        _left_by_models(side, alone & ~no)
        for side, alone, no in zip(sides, unmet, dim, strict=True)
    ]
    places = [places_of(side, some) for side, some in zip(sides, rows, strict=True)]
    sizes = [side.tensors.size[some].tolist() for side, some in zip(sides, rows, strict=True)]
    known = [list(zip(where, size, strict=True)) for where, size in zip(places, sizes, strict=True)]
    golden = set(known[1])
    shared = [key for key in known[0] if key in golden and key[0] < place]
    if not shared:
        return None
    first = min(shared, key=lambda key: key[0])
    mine, theirs = (int(some[keys.index(first)]) for some, keys in zip(rows, known, strict=True))
    return first[0], [mine], [theirs]


def _left_by_models(side: Side, wanted: Bools) -> Ints:
    """Rows of parameters and buffers that calls of models write in a forward pass."""
    tensors = side.tensors
    # of models alone: what an optimizer makes of a gradient that is rounding is nobody's fault
    models = side.in_phase("forward") & within_modules(side)
    rows: Ints = np.flatnonzero(tensors.output & tensors.parameter & wanted & models[tensors.call])
    return rows


class LeftStates:
    """The states that calls of the models leave behind, of both sides; unmet and dim are the
    target's rows that meet nothing, and those of which statistics tell nothing.
    """

    def __init__(
        self,
        pairing: Pairing,
        meetings: Meetings,
        unmet: Bools,
        dim: Bools,
    ) -> None:
        self._pairing, self._meetings = pairing, meetings
        self._unmet, self._dim = unmet, dim

    def first(self) -> tuple[int, int] | None:
        """The first call of the target that leaves another state than golden's call of the same
        operator and the same inputs, and that call.
        """
        side = self._pairing.target
        for row in _left_by_models(side, self._unmet & ~self._dim).tolist():
            call = int(side.tensors.call[row])
            partner = self._partner(call)
            if partner != NONE and self._differs(row, partner):
                return call, partner
        return None

    def _partner(self, call: int) -> int:
        """Golden's call of the same operator that reads the same; NONE unless there is one."""
        flow, partner = self._pairing.flows[1], self._meetings.partner[0]
        target = self._pairing.target
        read = given_to(target, call)
        if not read or any(self._unmet[row] or partner[row] < 0 for row in read):
            return NONE
        states = {int(flow.state[partner[row]]) for row in read}
        readers = self._readers.get((family(target.operator(call)), frozenset(states)), [])
        return readers[0] if len(readers) == 1 else NONE

    @cached_property
    def _readers(self) -> dict[tuple[str, frozenset[int]], list[int]]:
        """Golden's calls that leave states behind, by operator and what they read."""
        side, flow = self._pairing.golden, self._pairing.flows[1]
        readers: dict[tuple[str, frozenset[int]], list[int]] = defaultdict(list)
        rows = np.flatnonzero(side.tensors.output & side.tensors.parameter)
        for call in np.unique(side.tensors.call[rows]).tolist():
            states = frozenset(int(flow.state[row]) for row in given_to(side, call))
            readers[family(side.operator(call)), states].append(call)
        return readers

    def _differs(self, row: int, partner: int) -> bool:
        """Whether a state is not the one that a call of golden leaves in its place."""
        target, golden = self._pairing.target.tensors, self._pairing.golden.tensors
        others = [
            other
            for other in outputs_of(self._pairing.golden, partner)
            if golden.slot[other] == target.slot[row] and golden.size[other] == target.size[row]
        ]
        if len(others) != 1:
            return False
        error = statistic_error(target, golden, np.array([row]), np.array(others))
        return bool(error[0] > self._meetings.limit[0][row])
