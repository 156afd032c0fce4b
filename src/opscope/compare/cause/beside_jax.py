# SPDX-License-Identifier: Apache-2.0
"""By how much the states of a training may be apart where one of two programs is of JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.compare.pair.sketches import sketch
from opscope.compare.side.call_rows import given_to
from opscope.compare.side.lowering import one_of_jax, spelling
from opscope.operators.spelling import JAX

if TYPE_CHECKING:
    from opscope.compare.side.columns import Side

    Sides = tuple[Side, Side]
    Rows = tuple[list[int], list[int]]

RATE = 1e-3  # of what an optimizer of JAX adds, by which that may be off


def rounded_rate(sides: Sides, rows: Rows) -> float:
    """How far apart a parameter may be, to its scale, since one side is of JAX, whose optimizers
    work out their rates in float32 (one less 0.999 to some power): by so much of what they add.
    """
    for side, some in zip(sides, rows, strict=True):
        if spelling(side) != JAX:
            continue
        size = side.tensors.size
        added = [
            row
            for parameter in some
            for row in given_to(side, int(side.tensors.call[parameter]))
            if size[row] == size[parameter]
        ]
        reach = sketch(side, some).reach
        if added and reach > 0:
            return RATE * min(1.0, sketch(side, added).reach / reach)
    return 0.0


def kept_otherwise(sides: Sides, rows: Rows) -> bool:
    """Whether forward passes beside JAX leave another state, as the mean that a norm keeps: no
    optimizer moved it, and no call of one can be held against one of the other.
    """
    if not one_of_jax(*sides):
        return False
    phases = {
        side.words.get(int(side.calls.phase[side.tensors.call[row]]))
        for side, some in zip(sides, rows, strict=True)
        for row in some
    }
    return phases == {"forward"}
