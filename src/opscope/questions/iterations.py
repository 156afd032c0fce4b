# SPDX-License-Identifier: Apache-2.0
"""Which time a line made a call, where a run knows of no steps: a loop over plain tensors stays in
step 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from opscope.questions.tables import Tables

# What ends steps, so that in a run which holds any of it the step says when.
_STEPPED = """SELECT count(*) FROM calls
    WHERE step > 0 OR phase = 'optimizer' OR level = 'module'"""
_TIMES = """SELECT one.process, one."index", count(*) FILTER (each."index" <= one."index"), count(*)
    FROM (SELECT process, "index", op, phase, module, source
          FROM near_calls JOIN wanted USING (process, "index") WHERE source IS NOT NULL) AS one
    JOIN calls AS each USING (process, op, phase, source)
    WHERE each.module IS NOT DISTINCT FROM one.module
    GROUP BY ALL"""

Time = tuple[int, int]  # the time, from 1 on, and how many there are


def times_of(
    tables: Tables, keys: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Mapping[Time, Time]:
    """Of calls (tables.key), which time their line made such a call, by process and index; nothing
    in a run with steps, and of calls that a line made once.
    """
    stepped = any(process.steps for process in tables.run.processes)  # known once it has ended
    if stepped or not len(keys) or tables.rows(_STEPPED)[0][0]:
        return {}
    rows = tables.rows(_TIMES, wanted=keys)
    return {(process, index): (time, times) for process, index, time, times in rows if times > 1}


def words_of_time(time: Time) -> str:
    """`time 31 of 300 that this line does it; the run knows of no steps`."""
    return f"time {time[0]} of {time[1]} that this line does it; the run knows of no steps"
