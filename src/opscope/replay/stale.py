# SPDX-License-Identifier: Apache-2.0
"""Whether a wrong result is that of an earlier call: a kernel that left its output as it found it
does not fail alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.run.query import sql

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

EARLIER = """
SELECT c.name AS name, c.step AS step, before."index" AS "index"
FROM tensors AS mine
JOIN tensors AS before ON before.process = mine.process AND before."index" < mine."index"
AND before.io = 'output'
    AND before.slot = mine.slot AND before.digest = mine.digest AND before.dtype = mine.dtype
    AND before.shape = mine.shape
JOIN calls AS c ON c.process = before.process AND c."index" = before."index"
WHERE mine.process = ? AND mine."index" = ? AND mine.io = 'output' AND mine.slot = ?
AND mine.min < mine.max AND c.op = ?
ORDER BY before."index" DESC
"""
INPUTS = (
    "SELECT slot, digest FROM tensors WHERE process = ? AND \"index\" = ? AND io = 'input' "
    "ORDER BY slot"
)


def stale(run: Run, call: Call, slot: str) -> str:
    """In words: the last earlier call of the operator, of other inputs, whose output has the same
    bits; empty where there is none.
    """
    mine = _inputs(run, call.process, call.index)
    for row in sql(run, EARLIER, [call.process, call.index, slot, call.op]):
        if _inputs(run, call.process, row["index"]) != mine:
            told = (
                f"it is bit for bit the result of {row['name']} in step {row['step']}, whose "
                "inputs were others"
            )
            return f"{told}: memory that the kernel did not write, which no call shows alone"
    return ""


def _inputs(run: Run, process: int, index: int) -> list[tuple[str, int | None]]:
    return [(row["slot"], row["digest"]) for row in sql(run, INPUTS, [process, index])]
