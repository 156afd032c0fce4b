# SPDX-License-Identifier: Apache-2.0
"""Whether an optimizer that does its whole step in one operator moved a tensor as far as it should.

Such operators work in float32 at least and round once, so a result lies within a rounding of the
true one and a few roundings of what was added to it. The bound of judge.tolerance is relative to
the parameter, which an update is a small part of.
"""

from __future__ import annotations

import numpy as np

from opscope.arrays import Array
from opscope.judge import families
from opscope.judge.replayed import BEYOND, ROUNDOFF, Replayed
from opscope.judge.tolerance import PRECISIONS
from opscope.operators.catalogue import family
from opscope.substitute.layout import WRITTEN

# roundings of the update: its own operations, and state that was rounded before it was used
SHARE = 16


def is_update(op: str, slot: str) -> bool:
    """Whether a slot is a tensor that an optimizer's operator moves."""
    return slot.startswith(WRITTEN) and families.tolerance_kind(family(op)) == "optimizer"


def judge_update(slot: str, dtype: str, before: Array, target: Array, true: Array) -> Replayed:
    """The verdict of a moved tensor: before, as it was left, and as float64 leaves it."""
    unit = ROUNDOFF[dtype]
    with np.errstate(all="ignore"):
        error = np.nan_to_num(np.abs(target - true), posinf=0.0)
        allowed = (
            unit * (1.5 * np.abs(true) + SHARE * np.abs(true - before)) + PRECISIONS[dtype].least
        )
        apart = error > allowed
    if not apart.any():
        return Replayed(verdict="agree", slot=slot, size=error.size)
    worst = np.unravel_index(int(np.argmax(error / allowed)), error.shape)
    return Replayed(
        verdict="wrong",
        slot=slot,
        reason=BEYOND,
        error=float(error[worst]),
        tolerance=float(allowed[worst]),
        size=error.size,
        elements=int(apart.sum()),
        worst=tuple(map(int, worst)),
        got=repr(target[worst].item()),
        expected=repr(true[worst].item()),
    )
