# SPDX-License-Identifier: Apache-2.0
"""Where values leap apart: far beyond their rounding and all that was before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from opscope.arrays import Bools, Floats, Ints
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.verdict.allowance import Measures

LEAP = 100.0


def leaps(pairing: Pairing, measures: Measures, chosen: Ints, steep: Bools) -> Iterator[int]:
    """For each rank the first of the chosen rows that leaps; steep flags calls of which a tiny
    change may make anything.
    """
    rows, calls = pairing.rows, pairing.target.calls
    ranks = calls.rank[rows.target_call[chosen]]
    for rank in np.unique(ranks).tolist():
        here = chosen[ranks == rank]
        error = rows.error[here]
        before = np.r_[0.0, np.maximum.accumulate(error)[:-1]]
        own = np.where(np.isnan(measures.own[here]), 0.0, measures.own[here])
        floor = np.maximum(
            np.maximum(own, 64 * rows.roundoff[here] * _beside(pairing, here)), 1e-12
        )
        jumps = steep[rows.target_call[here]] | np.isinf(measures.allowed[here])
        leaping = np.flatnonzero((error > LEAP * np.maximum(before, floor)) & ~jumps)
        if len(leaping):
            yield int(here[leaping[0]])


def _beside(pairing: Pairing, chosen: Ints) -> Floats:
    """How much larger the largest tensor of its call is than each row's: a gradient that is
    rounding alone stands beside another.
    """
    rows, tensors = pairing.rows, pairing.golden.tensors
    size = np.nan_to_num(tensors.l2norm) / np.sqrt(np.maximum(tensors.size, 1))
    largest = np.zeros(len(pairing.golden.calls))
    np.maximum.at(largest, tensors.call, size)
    golden_rows = rows.golden[chosen]
    with np.errstate(over="ignore", invalid="ignore"):
        ratio: Floats = np.fmax(
            largest[tensors.call[golden_rows]] / np.maximum(size[golden_rows], 1e-300), 1.0
        )
    return ratio
