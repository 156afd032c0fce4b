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
from opscope.operators.catalogue import traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools
    from opscope.compare.cause.trained_states import Apart
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

    Flags = tuple[Bools, Bools]  # of the rows of either side
    Weights = tuple[int, float, float]  # how many elements, the least and the most of them
    Turn = tuple[list[int], list[int]]  # what a layer is given once: rows of either side, by passes

FEWEST = 8  # elements of weights by which two layers are known to be one


class _Layer(NamedTuple):
    """A layer of both sides: its rank and step, in how many passes either runs it, and what it is
    given each time.
    """

    place: Place
    passes: tuple[int, int]
    turns: list[Turn]


def layers_apart(pairing: Pairing, unmet: Flags, dim: Flags) -> list[Apart]:
    """The first of what layers with the same weights are given that meets nothing on either side,
    as nothing does behind it, where they are run as often, and on as much, by both; or each time in
    as many passes as another layer is, of which each meets something.

    unmet: rows that meet nothing; dim: those of which statistics tell nothing.
    """
    apart = unmet[0] & ~dim[0], unmet[1] & ~dim[1]
    layers = _in_common(pairing, (~unmet[0] & ~dim[0], ~unmet[1] & ~dim[1]))
    joined = {
        layer.passes
        for layer in layers
        if layer.passes[0] == layer.passes[1]
        or not any(_meets_nothing(apart, turn) for turn in layer.turns)
    }
    rounds: dict[tuple[Place, int, int], list[Turn]] = defaultdict(list)
    for layer in layers:
        for number, turn in enumerate(layer.turns) if layer.passes in joined else ():
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
    layers = list[_Layer]()
    for layer in mine.keys() & theirs.keys():
        passes = len(mine[layer]), len(theirs[layer])
        own, others = (_turns(rows[layer], min(passes)) for rows in (mine, theirs))
        if _sizes(sides[0], own) == _sizes(sides[1], others):
            layers.append(_Layer(layer[0], passes, [*zip(own, others, strict=True)]))
    return layers


def _given(side: Side, flow: Flow, known: Bools) -> dict[tuple[Place, Weights], list[int]]:
    """What each product of a side reads beside weights that meet the other side's."""
    products = side.calls.leaf & side.which(side.calls.op, lambda op: traits_of(op).contraction)
    tensors, given = side.tensors, defaultdict[tuple["Place", "Weights"], list[int]](list)
    for call in np.flatnonzero(products).tolist():
        read = [row for row in inputs_of(side, call) if tensors.size[row] >= FEWEST]
        weights = [row for row in read if is_weight(side, flow, row)]
        weight = max(weights, key=lambda row: int(tensors.size[row]), default=NONE)
        data = next((row for row in read if row not in weights), NONE)
        if min(weight, data) >= 0 and known[weight]:
            (place,) = places_of(side, np.array([data]))
            extremes = float(tensors.min[weight]), float(tensors.max[weight])
            given[place, (int(tensors.size[weight]), *extremes)].append(data)
    return given


def is_weight(side: Side, flow: Flow, row: int) -> bool:
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


def _turns(rows: list[int], often: int) -> list[list[int]]:
    """What a layer is given so many times, each in one pass or in several; nothing where it is not
    so often.
    """
    passes, odd = divmod(len(rows), often)
    if odd or passes > MOST_PASSES:
        return []
    return [rows[at : at + passes] for at in range(0, len(rows), passes)]


def _sizes(side: Side, turns: list[list[int]]) -> list[int]:
    return [int(side.tensors.size[rows].sum()) for rows in turns]


def _meets_nothing(apart: Flags, turn: Turn) -> bool:
    """Whether all that a layer is given in a turn meets nothing on the other side."""
    return all(bool(flags[rows].all()) for flags, rows in zip(apart, turn, strict=True))


def _behind_what_meets(apart: Flags, turns: list[Turn]) -> list[Turn]:
    """What layers are given one after the other, behind the last that meets something."""
    met = [at for at, turn in enumerate(turns, 1) if not _meets_nothing(apart, turn)]
    return turns[max(met, default=0) :]
