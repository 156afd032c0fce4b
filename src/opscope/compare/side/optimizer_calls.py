# SPDX-License-Identifier: Apache-2.0
"""Which calls belong to an optimizer, also in dumps that do not say so: what runs in a step after
all of its backward pass.

Other tools record an optimizer that loops over parameters, and nothing of one that takes lists of
them or a fused kernel; so what one side has of an optimizer while the other has nothing of it was
not recorded there, rather than not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.run.hashes import mixed

if TYPE_CHECKING:
    from opscope.arrays import Bools
    from opscope.compare.side.columns import Side

LONG = 4  # calls after a backward pass that are more than a loss being read


def optimizing(side: Side) -> Bools:
    """Calls of optimizers."""
    calls = side.calls
    marked: Bools = side.in_phase("optimizer")
    if side.run.info.coverage.phases or marked.any():
        return marked
    backward = side.in_phase("backward")
    _, step = np.unique(
        mixed(calls.step.astype(np.uint64), calls.process.astype(np.uint64)), return_inverse=True
    )
    last = np.full(int(step.max(initial=-1)) + 1, len(step))
    if backward.any():
        last[np.unique(step[backward])] = -1
        np.maximum.at(last, step[backward], np.flatnonzero(backward))
    return np.arange(len(step)) > last[step]


def unrecorded(side: Side, other: Side) -> Bools:
    """Calls of a side's optimizer where the other side has none of its own: its tool did not record
    them.
    """
    none = np.zeros(len(side.calls), dtype=np.bool_)
    if other.run.info.coverage.phases or int(np.count_nonzero(optimizing(other))) > LONG:
        return none
    own = optimizing(side)
    return own if int(np.count_nonzero(own)) > LONG else none
