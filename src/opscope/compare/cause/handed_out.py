# SPDX-License-Identifier: Apache-2.0
"""What models hand out where they are not trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.side.call_rows import inputs_of, steps_of
from opscope.compare.side.columns import MODULE
from opscope.compare.side.contents import bears_identities, differentiated
from opscope.operators.catalogue import traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.side.columns import Side


def handed_out(side: Side, source: Ints, losses: Ints) -> Ints:
    """The rows that hold what the model of a side hands out where it is not trained: behind the
    last backward pass of a step, and before it where no backward pass goes through it, and none of
    the losses, which are rows of these, is computed from it. source: the row each row was made in.
    """
    calls, tensors = side.calls, side.tensors
    outermost = np.flatnonzero((calls.level == MODULE) & (calls.parent < 0))
    if not len(outermost) or not bears_identities(side):  # dumps begin below the model
        return outermost[:0]
    free = ~_trained(side, outermost, source, losses)
    products = calls.leaf & side.which(calls.op, lambda op: traits_of(op).contraction)
    inside = np.add.reduceat(products.astype(np.int64), outermost)
    extent = np.diff(np.r_[outermost, len(calls)])
    outermost, inside, extent = outermost[free], inside[free], extent[free]
    if not len(outermost):
        return outermost
    model = calls.module[outermost[np.lexsort((extent, inside))[-1]]]  # not a metric's
    chosen = outermost[calls.module[outermost] == model]
    return _leaf_rows(side, np.flatnonzero(tensors.output & np.isin(tensors.call, chosen)))


def _trained(side: Side, outermost: Ints, source: Ints, losses: Ints) -> Bools:
    """Which calls of outermost modules are before the last backward pass of their step, and in one,
    or in what a loss is computed from.
    """
    calls = side.calls
    backward = np.flatnonzero(side.in_phase("backward"))
    places, at = np.unique(steps_of(side), return_inverse=True)
    last = np.full(len(places), NONE)
    np.maximum.at(last, at[backward], backward)
    before: Bools = outermost < last[at[outermost]]
    through = differentiated(side)
    if not through.any():
        return before
    of_outermost = np.isin(np.arange(len(calls)), outermost)
    module = side.enclosing(of_outermost)
    module[outermost] = outermost
    trained = np.isin(outermost, module[through])
    if before[~trained].any():
        trained |= np.isin(outermost, _computed_from(side, source, module, losses))
    return before & trained


def _computed_from(side: Side, source: Ints, module: Ints, losses: Ints) -> Ints:
    """The calls of outermost modules from which losses are computed, by and by. module: of each
    call the outermost module's that encloses it.
    """
    above, waiting = set[int](), side.tensors.call[losses].tolist()
    while waiting:
        call = waiting.pop()
        call = int(module[call]) if module[call] >= 0 else call
        if call not in above:
            above.add(call)
            made = (int(source[row]) for row in inputs_of(side, call))
            waiting.extend(int(side.tensors.call[row]) for row in made if row >= 0)
    return np.array(sorted(above), dtype=np.int64)


def _leaf_rows(side: Side, rows: Ints) -> Ints:
    """The last rows of leaf calls that wrote what rows of modules name."""
    tensors, calls = side.tensors, side.calls
    wanted = np.unique(tensors.version[rows])
    leaf = np.flatnonzero(
        tensors.output & calls.leaf[tensors.call] & np.isin(tensors.version, wanted[wanted >= 0])
    )
    _, last = np.unique(tensors.version[leaf][::-1], return_index=True)
    return leaf[::-1][last]
