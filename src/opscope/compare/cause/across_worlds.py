# SPDX-License-Identifier: Apache-2.0
"""What is otherwise where two programs are of two worlds, one of JAX, MindSpore or TensorFlow, or
compute in a coarse type: by how much states of a training may be apart, and what tells nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.cause.what_matters import FINER
from opscope.compare.pair.sketches import sketch
from opscope.compare.side.call_rows import given_to, inputs_of
from opscope.compare.side.lowering import STAGED, spelling, worlds_apart
from opscope.operators.catalogue import kin, traits_of
from opscope.operators.spelling import JAX, TENSORFLOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from opscope.arrays import Bools, Ints, Words
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.side.columns import Side

    Sides = tuple[Side, Side]
    Rows = tuple[list[int], list[int]]

NEVER = 1 << 62  # a step that no run comes to
EASED = 8.0  # limits, by which what is computed with updated parameters may be apart
RATE = 1e-3  # of what an optimizer of another world adds, by which that may be off
ROOTED = 1e-2  # the same of TensorFlow's, of which one adds its epsilon below a root


def rounded_rate(sides: Sides, rows: Rows) -> float:
    """How far apart a parameter of two worlds may be, to its scale, since optimizers of one work
    out their rates in float32 (one less 0.999 to some power): by so much of what is added.
    """
    worlds = [spelling(side) for side in sides]
    shown = worlds.index(JAX) if JAX in worlds else int(worlds[0] in STAGED)
    added = (_added if JAX in worlds else _moved)(sides[shown], rows[shown])
    return (ROOTED if TENSORFLOW in worlds else RATE) * min(1.0, added)


def _added(side: Side, rows: list[int]) -> float:
    """The largest of what is added to parameters at once, to theirs."""
    added = _read_with(side, rows, given_to, side.tensors.size)
    reach = sketch(side, rows).reach
    return sketch(side, added).reach / reach if added and reach > 0 else 0.0


def _moved(side: Side, rows: list[int]) -> float:
    """How far parameters are from what the calls that write to them read of them."""
    read = _read_with(side, rows, inputs_of, side.tensors.named)
    read = [row for row in read if side.tensors.parameter[row]]  # gradients bear names of theirs
    return sketch(side, read).error(sketch(side, rows)) if len(read) == len(rows) else 0.0


def _read_with(
    side: Side, parameters: list[int], reads: Callable[[Side, int], list[int]], column: Ints | Words
) -> list[int]:
    """The rows that calls read which write to parameters, of those reads gives: each of which a
    column says the same as of the parameter.
    """
    return [
        row
        for parameter in parameters
        for row in reads(side, int(side.tensors.call[parameter]))
        if column[row] == column[parameter]
    ]


def eased(sides: Sides, meetings: Meetings) -> Meetings:
    """The meetings with wider limits in steps that drift."""
    first = drifts_from(sides, meetings)
    if first == NEVER:
        return meetings
    mine, theirs = (
        np.where(side.calls.step[side.tensors.call] >= first, EASED * limit, limit)
        for side, limit in zip(sides, meetings.limit, strict=True)
    )
    return msgspec.structs.replace(meetings, limit=(mine, theirs))


def drifts_from(sides: Sides, meetings: Meetings) -> int:
    """The step from which trainings that are right drift apart, behind the first update: from
    MindSpore's and TensorFlow's, whose Adam adds epsilon to another denominator than torch's, so
    that numbers of which the gradient is next to nothing move otherwise, and gradients part that
    losses do not show; and in types as coarse as bfloat16, of whose roundings all gradients have
    their part.
    """
    staged = _beside_staged(sides)
    if not staged and not meetings.coarse:
        return NEVER
    trains = "optimizer" if staged else "backward"
    steps = (side.calls.step[side.in_phase(trains)] for side in sides)
    return 1 + min(int(of_side.min(initial=NEVER - 1)) for of_side in steps)


def finer(sides: Sides) -> float:
    """By how much of its limit a difference is followed that is sure: all of it where kernels of
    another library round otherwise.
    """
    return 1.0 if _beside_staged(sides) else FINER


def _beside_staged(sides: Sides) -> bool:
    """Whether one of the two is of MindSpore or TensorFlow and the other is not."""
    return worlds_apart(*sides) and bool(STAGED & {*map(spelling, sides)})


def kept_otherwise(sides: Sides, rows: Rows) -> bool:
    """Whether forward passes of two worlds leave another state, as the mean that a norm keeps: no
    optimizer moved it, and no call of one can be held against one of the other.
    """
    if not worlds_apart(*sides):
        return False
    phases = {
        side.words.get(int(side.calls.phase[side.tensors.call[row]]))
        for side, some in zip(sides, rows, strict=True)
        for row in some
    }
    return phases == {"forward"}


def telling_nothing(sides: Sides) -> tuple[Bools, Bools]:
    """Rows of either side that tell nothing of what the other computes: what operators make beside
    their results, as a variance here and its root there, and the counters of an optimizer.
    """
    if not worlds_apart(*sides):
        mine, theirs = (np.zeros(len(side.tensors), dtype=np.bool_) for side in sides)
        return mine, theirs
    mine, theirs = (_beside_results(side) | _counters(side) for side in sides)
    return mine, theirs


def _beside_results(side: Side) -> Bools:
    tensors = side.tensors
    several = side.which(side.calls.op, lambda op: traits_of(kin(op)).by_products)
    rows = np.flatnonzero(tensors.output & ~tensors.parameter & several[tensors.call])
    first = np.r_[True, np.diff(tensors.call[rows]) != 0][: len(rows)]
    beside = np.zeros(len(tensors), dtype=np.bool_)
    beside[rows[~first]] = True
    return beside


def _counters(side: Side) -> Bools:
    """Single numbers of optimizers that become graphs: powers of betas, rates."""
    tensors = side.tensors
    counters: Bools = (tensors.size == 1) & side.in_phase("optimizer")[tensors.call]
    return counters & (spelling(side) in STAGED)
