# SPDX-License-Identifier: Apache-2.0
"""What layers with the same weights are given in two programs, which may run them in other passes.

What a layer is given tells of all that is computed before it, however the two hand out what comes
of it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opscope.compare.cause.what_matters import FORWARD
from opscope.compare.pair.passes import MOST_PASSES
from opscope.compare.side.call_rows import inputs_of, places_of
from opscope.compare.side.loaded_weights import FEWEST
from opscope.operators.catalogue import traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.cause.trained_states import Apart
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

    Flags = tuple[Bools, Bools]  # of the rows of either side
    Weights = tuple[int, float, float]  # how many elements, the least and the most of them
    Turn = tuple[list[int], list[int]]  # what a layer is given once: rows of either side, by passes


class _Layer(NamedTuple):
    """A layer of both sides: its rank and step, and what it is given each time."""

    place: Place
    turns: list[Turn]

    @property
    def passes(self) -> tuple[tuple[int, int], ...]:
        """In how many passes either side runs it each time."""
        return tuple((len(own), len(others)) for own, others in self.turns)


def layers_apart(pairing: Pairing, unmet: Flags, dim: Flags) -> list[Apart]:
    """The first of what layers with the same weights are given that meets nothing on either side,
    as nothing does behind it, where they are run as often, and on as much, by both; or in as many
    passes for each of the other side's as another layer, of which each meets something.

    unmet: rows that meet nothing; dim: those of which statistics tell nothing.
    """
    apart = unmet[0] & ~dim[0], unmet[1] & ~dim[1]
    layers = _in_common(pairing, (~unmet[0] & ~dim[0], ~unmet[1] & ~dim[1]))
    joined = {
        layer.passes
        for layer in layers
        if {*layer.passes} == {(1, 1)}
        or not any(_meets_nothing(apart, turn) for turn in layer.turns)
    }
    rounds: dict[tuple[Place, int, int], list[Turn]] = defaultdict(list)
    for layer in layers:
        for number, turn in enumerate(layer.turns if layer.passes in joined else ()):
            rounds[layer.place, len(layer.turns), number].append(turn)
    found = [
        (turn, place)
        for (place, *_), turns in rounds.items()
        for turn in _behind_what_meets(apart, sorted(turns))[:1]
    ]
    return [(place, FORWARD, turn) for turn, place in sorted(found)[:1]]


def _in_common(pairing: Pairing, known: Flags) -> list[_Layer]:
    """The layers that both sides run on as much; known: rows that meet the other side's."""
    sides = pairing.target, pairing.golden
    columns = zip(sides, pairing.flows, known, strict=True)
    mine, theirs = (_given(side, flow, flags) for side, flow, flags in columns)
    sizes, layers = [side.tensors.size for side in sides], list[_Layer]()
    for layer in mine.keys() & theirs.keys():
        turns = _turns(_sized(mine[layer], sizes[0]), _sized(theirs[layer], sizes[1]))
        layers.append(_Layer(layer[0], turns))
    return [layer for layer in layers if layer.turns]


def _given(side: Side, flow: Flow, known: Bools) -> dict[tuple[Place, Weights], list[int]]:
    """What each product of a side reads beside weights that meet the other side's."""
    products = side.calls.leaf & side.which(side.calls.op, lambda op: traits_of(op).contraction)
    tensors = side.tensors
    given: dict[tuple[Place, Weights], list[int]] = defaultdict(list)
    for call in np.flatnonzero(products).tolist():
        read = [row for row in inputs_of(side, call) if tensors.size[row] >= FEWEST]
        weights = [row for row in read if _is_weight(side, flow, row)]
        weight = max(weights, key=lambda row: int(tensors.size[row]), default=NONE)
        data = next((row for row in read if row not in weights), NONE)
        if min(weight, data) >= 0 and known[weight]:
            (place,) = places_of(side, np.array([data]))
            extremes = float(tensors.min[weight]), float(tensors.max[weight])
            given[place, (int(tensors.size[weight]), *extremes)].append(data)
    return given


def _is_weight(side: Side, flow: Flow, row: int) -> bool:
    """Whether a tensor is a parameter, or drawn, or brought in from outside, and not computed."""
    while row >= 0 and not side.tensors.parameter[row]:
        producer = int(flow.producer[row])
        if producer < 0:
            return True
        traits = traits_of(side.operator(producer))
        if not (traits.view or traits.idle or traits.brings or traits.random):
            return False
        row = next(iter(inputs_of(side, producer)), NONE)
    return True


def _sized(rows: list[int], size: Ints) -> list[tuple[int, int]]:
    return [(row, int(size[row])) for row in rows]


def _turns(mine: list[tuple[int, int]], theirs: list[tuple[int, int]]) -> list[Turn]:
    """What a layer is given each time, by as much as both sides give it in one pass or in several:
    rows and their sizes; nothing where that is not so.
    """
    turns: list[Turn] = []
    waiting = mine[::-1], theirs[::-1]
    while waiting[0] and waiting[1]:
        taken: tuple[list[int], list[int]] = [], []
        ahead = 0  # elements that the target's passes have more
        while not taken[0] or ahead:
            behind = int(ahead > 0)
            if not waiting[behind]:
                return []
            row, size = waiting[behind].pop()
            taken[behind].append(row)
            ahead += -size if behind else size
        turns.append(taken)
    most = max((len(rows) for turn in turns for rows in turn), default=0)
    return [] if waiting[0] or waiting[1] or most > MOST_PASSES else turns


def _meets_nothing(apart: Flags, turn: Turn) -> bool:
    """Whether all that a layer is given in a turn meets nothing on the other side."""
    return all(bool(flags[rows].all()) for flags, rows in zip(apart, turn, strict=True))


def _behind_what_meets(apart: Flags, turns: list[Turn]) -> list[Turn]:
    """What layers are given one after the other, behind the last that meets something."""
    met = [at for at, turn in enumerate(turns, 1) if not _meets_nothing(apart, turn)]
    return turns[max(met, default=0) :]
