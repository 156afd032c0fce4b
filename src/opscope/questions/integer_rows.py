# SPDX-License-Identifier: Apache-2.0
"""Calls whose integer arithmetic nobody judged while it ran, and whose values are large enough to
leave their type.

opscope's own recorder judges integers by their values while they are there, and writes what it
found as the call's status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.judge.integers import INTERVALS
from opscope.operators.catalogue import traits_of
from opscope.questions.tables import Tables, key, keys_of, merged
from opscope.run.query import columns

if TYPE_CHECKING:
    from opscope.arrays import Ints
    from opscope.run.protocol import Run

_BYTE = 12
_UNJUDGED = """
    SELECT process, "index" FROM near_calls SEMI JOIN wanted USING (process, "index")
    WHERE status IS NULL AND op IN (SELECT unnest(?))
"""


def integer_keys(tables: Tables) -> Ints:
    """Keys of these calls, sorted."""
    if tables.run.info.coverage.integers:
        return merged([])
    candidates = _candidates(tables.run)
    if not candidates.size:
        return candidates
    ops = [
        op
        for (op,) in tables.rows("SELECT DISTINCT op FROM calls WHERE status IS NULL")
        if _judged(op)
    ]
    if not ops:
        return merged([])
    found = tables.rows(_UNJUDGED, [ops], wanted=candidates)
    return np.unique(np.array([key(process, index) for process, index in found], dtype=np.int64))


def _judged(op: str) -> bool:
    return INTERVALS.find(op) is not None or traits_of(op).cast


def _candidates(run: Run) -> Ints:
    found = []
    for batch in columns(run, "tensors", ("process", "index", "min_int", "max_int")):
        known = ~np.ma.getmaskarray(batch["min_int"])
        if not known.any():
            continue
        low, high = np.ma.getdata(batch["min_int"]), np.ma.getdata(batch["max_int"])
        chosen = known & ((high >= _BYTE) | (low <= -_BYTE))
        if chosen.any():
            found.append(np.unique(keys_of(batch["process"][chosen], batch["index"][chosen])))
    return merged(found)
