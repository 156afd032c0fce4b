# SPDX-License-Identifier: Apache-2.0
"""Early warning: values of narrow types that come near the limit, before anything overflowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from opscope.judge.limits import NARROW, largest_finite
from opscope.operators.catalogue import traits_of
from opscope.questions.tables import Tables

MAX_WARNINGS = 10
_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")

# A value exactly at the limit is a mask or was clipped; it is no sign of growth.
_NEAR = """
    WITH near AS (
        SELECT DISTINCT c.rank, c.name, t.dtype, t.slot
        FROM tensors t JOIN calls c ON t.process = c.process AND t."index" = c."index"
        WHERE t.near_limit > 0 AND t.io = 'output' AND t.dtype IN (SELECT unnest(?))
        AND c.level = 'operator')
    SELECT n.rank, n.name, n.dtype, c.step, c.op, greatest(abs(t.min), abs(t.max))
    FROM near n JOIN calls c ON c.rank = n.rank AND c.name = n.name
    JOIN tensors t ON t.process = c.process AND t."index" = c."index" AND t.io = 'output'
    AND t.slot = n.slot
    WHERE t.max IS NOT NULL
    ORDER BY n.rank, n.name, c.step
"""


def near_limit_warnings(tables: Tables) -> list[str]:
    """One line for each call whose outputs come near the limit of float16 or fp8, those that grow
    first.
    """
    rows = tables.rows(_NEAR, [sorted(NARROW)])
    series: dict[tuple[int, str, str], list[tuple[int, float]]] = {}
    for rank, name, dtype, step, op, largest in rows:
        if traits_of(op).view:
            continue  # says again what the call said whose result it looks at
        series.setdefault((rank, name, dtype), []).append((step, largest))
    lines = [
        (growing, line) for site, values in series.items() for growing, line in _line(site, values)
    ]
    lines.sort(key=lambda item: not item[0])
    return once_each([line for _, line in lines])[:MAX_WARNINGS]


def once_each(warnings: Sequence[str]) -> list[str]:
    """Warnings that differ in their numbers alone (the same call of every layer) told once, with
    how many more there are.
    """
    kinds: dict[str, list[str]] = {}
    for warning in warnings:
        kinds.setdefault(_NUMBER.sub("#", warning), []).append(warning)
    return [
        same[0] if len(same) == 1 else f"{same[0]} (and {len(same) - 1} more like it)"
        for same in kinds.values()
    ]


def _line(site: tuple[int, str, str], values: list[tuple[int, float]]) -> list[tuple[bool, Any]]:
    rank, name, dtype = site
    limit = largest_finite(dtype)
    step, largest = max(values, key=lambda item: item[1])
    if limit is None or largest >= limit or largest < 0.9 * limit:
        return []
    sizes = [size for _, size in values]
    growing = (
        len(sizes) >= 3
        and sizes[-1] > 1.5 * sizes[0]
        and all(later >= 0.9 * earlier for earlier, later in pairwise(sizes))
    )
    trend = f", growing from {sizes[0]:.3g} in step {values[0][0]}" if growing else ""
    return [
        (
            growing,
            (
                f"rank {rank}: {name} reaches {largest:.4g} in step {step}, near the limit of "
                f"{dtype} ({limit:g}){trend}"
            ),
        )
    ]
