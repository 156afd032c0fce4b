# SPDX-License-Identifier: Apache-2.0
"""A loss, or the norm of all gradients, that leaps in one step, and the call where the growth
began: warnings, never findings.

A learning rate that is too high leaves everything finite: one update throws the parameters far
away, and the next step computes with them. So the call is the update that made a parameter many
times larger, else the first call of the step whose result grew that much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from opscope.questions.tables import Tables, key, merged

JUMP = 1e3  # times the largest earlier value, which counts as at least 1
BEGAN = 30.0  # times the norm of before: where the growth began

_ONES = """
    SELECT process, "index" FROM calls
    WHERE op LIKE 'aten::ones_like%' AND (rank, step) IN (SELECT (unnest(?), unnest(?)))
"""
_LOSSES = """
    SELECT c.rank, c.step, max(abs(t.max)) FROM near_calls c
    JOIN near_tensors t ON t.process = c.process AND t."index" = c."index"
    WHERE (c.process, c."index") IN (SELECT (process, "index") FROM wanted)
    AND t.io = 'input' AND t.size = 1 AND t.max IS NOT NULL
    GROUP BY c.rank, c.step ORDER BY c.rank, c.step
"""
_UPDATES = """
    SELECT c.name, c.source, o.tensor_name, i.l2norm, o.l2norm
    FROM calls c
    JOIN tensors o ON o.process = c.process AND o."index" = c."index" AND o.io = 'output'
    AND o.role = 'parameter'
    JOIN tensors i ON i.process = c.process AND i."index" = c."index" AND i.io = 'input'
    AND i.storage = o.storage
    WHERE c.rank = ? AND c.step = ? AND c.phase IN ('optimizer', 'forward')
    AND o.l2norm > ? * i.l2norm AND i.l2norm > 0
    ORDER BY c."index" LIMIT 1
"""
_GROWN = """
    SELECT c.name, c.source, NULL, t.l2norm, o.l2norm
    FROM calls b JOIN calls c ON c.process = b.process AND c.name = b.name AND c.level = 'operator'
    JOIN tensors t ON t.process = b.process AND t."index" = b."index" AND t.io = 'output'
    JOIN tensors o ON o.process = c.process AND o."index" = c."index" AND o.io = 'output'
    AND o.slot = t.slot
    WHERE b.rank = ? AND c.rank = b.rank AND b.step = ? AND c.step = b.step + 1
    AND o.l2norm > ? * t.l2norm AND t.l2norm > 0
    ORDER BY c."index" LIMIT 1
"""


def jump_of(steps: Sequence[int], values: Sequence[float]) -> int | None:
    """Position of the first value that is JUMP times all earlier ones, in the step after the one
    before it; None when there is none.
    """
    largest = 1.0
    for at in range(1, len(values)):
        largest = max(largest, abs(values[at - 1]))
        if abs(values[at]) >= JUMP * largest and steps[at] == steps[at - 1] + 1:
            return at
    return None


def jump_warnings(
    tables: Tables,
    steps: Mapping[int, Sequence[int]],
    norms: Mapping[int, tuple[Sequence[int], Sequence[float]]],
) -> list[str]:
    """At most one line a rank; steps: those that are looked at, norms: of all gradients, by
    step.
    """
    lines = []
    losses = _losses(tables, steps)
    for rank in steps:
        rows = losses[rank]
        series = {
            "the loss": ([step for step, _ in rows], [value for _, value in rows]),
            "the norm of all gradients": norms.get(rank, ((), ())),
        }
        jumps = {what: at for what, each in series.items() if (at := jump_of(*each)) is not None}
        if jumps:
            what, at = min(jumps.items(), key=lambda item: series[item[0]][0][item[1]])
            numbers, values = series[what]
            words = (
                f"{what} leaps from {values[at - 1]:.3g} in step {numbers[at - 1]} to "
                f"{values[at]:.3g} in step {numbers[at]}"
            )
            lines.append(f"rank {rank}: {words}{_beginning(tables, rank, numbers[at])}")
    return lines


def _losses(
    tables: Tables, steps: Mapping[int, Sequence[int]]
) -> Mapping[int, Sequence[tuple[int, float]]]:
    """Of each rank the steps with their largest loss: what the gradient of ones is made like before
    backward begins.
    """
    by_rank: dict[int, list[tuple[int, float]]] = {rank: [] for rank in steps}
    places = [(rank, step) for rank, each in steps.items() for step in each]
    given = [[rank for rank, _ in places], [step for _, step in places]]
    calls = [key(*call) for call in tables.rows(_ONES, given)] if places else []
    if calls:
        wanted = merged([np.array(calls, dtype=np.int64)])
        for rank, step, value in tables.rows(_LOSSES, wanted=wanted):
            by_rank[rank].append((step, value))
    return by_rank


def _beginning(tables: Tables, rank: int, step: int) -> str:
    """Where the growth began, in words: an update of the step before, else a call of the step
    itself.
    """
    for query in (_UPDATES, _GROWN):
        for name, source, tensor, before, after in tables.rows(query, [rank, step - 1, BEGAN]):
            whose = f" makes {tensor}" if tensor else " grows"
            line = f" ({source})" if source else ""
            return (
                f"; it began in step {step - 1 if query is _UPDATES else step}: "
                f"{name}{line}{whose} from norm {before:.3g} to {after:.3g}"
            )
    return ""
