# SPDX-License-Identifier: Apache-2.0
"""Calls that read integers which wrapped, directly or through arithmetic and conversions: all
finite, so nothing else finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opscope.judge.wrapping import WRAPS, follows
from opscope.questions.tables import Tables, keys_at, merged

if TYPE_CHECKING:
    from opscope.arrays import Ints

_WRAPPED = (
    'SELECT process, "index" FROM near_calls SEMI JOIN wanted USING (process, "index") '  # noqa: S608
    f"WHERE (status & {WRAPS}) <> 0"
)
_READERS = """
    WITH RECURSIVE reached(process, version) AS (
        SELECT process, version FROM near_tensors SEMI JOIN wanted USING (process, "index")
        WHERE io = 'output' AND version IS NOT NULL
        UNION
        SELECT o.process, o.version
        FROM reached r
        JOIN tensors i ON i.process = r.process AND i.version = r.version AND i.io = 'input'
        JOIN calls c ON c.process = i.process AND c."index" = i."index"
        AND c.op IN (SELECT unnest(?))
        JOIN tensors o ON o.process = i.process AND o."index" = i."index" AND o.io = 'output'
        AND o.version IS NOT NULL)
    SELECT DISTINCT i.process, i."index"
    FROM reached r JOIN tensors i ON i.process = r.process AND i.version = r.version
    AND i.io = 'input'
"""


def wrapped_readers(tables: Tables, status: Sequence[Ints]) -> Ints:
    """Keys of these calls, sorted; status are keys of the calls that have a status bit."""
    overflowed = merged(status)
    wraps = keys_at(tables.rows(_WRAPPED, wanted=overflowed)) if overflowed.size else overflowed
    if not wraps.size:
        return wraps
    ops = [op for (op,) in tables.rows("SELECT DISTINCT op FROM calls") if follows(op)]
    return keys_at(tables.rows(_READERS, [ops], wanted=wraps))
