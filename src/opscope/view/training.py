# SPDX-License-Identifier: Apache-2.0
"""Training over its steps: the loss, the norms of gradients and parameters, units that are dead."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from opscope.operators.catalogue import traits_of

if TYPE_CHECKING:
    from opscope.questions.tables import Tables

MOST_LINES, MOST_STEPS = 200, 2000
_LOSSES = """SELECT rank, name, step, max(max), sum(nan + pos_inf + neg_inf)
    FROM calls JOIN tensors USING (process, "index")
    WHERE op IN (SELECT unnest(?)) AND io = 'output' AND slot = '0' AND size = 1
    AND phase = 'forward'
    GROUP BY ALL ORDER BY rank, name, step LIMIT ?"""
_NORMS = """SELECT role, tensor_name, step, arg_max(l2norm, "index"),
    arg_max(coalesce(nan, 0) + coalesce(pos_inf, 0) + coalesce(neg_inf, 0), "index")
    FROM calls JOIN tensors USING (process, "index")
    WHERE rank = ? AND role IN ('gradient', 'parameter') AND tensor_name IS NOT NULL
    AND size IS NOT NULL GROUP BY ALL ORDER BY role, tensor_name, step LIMIT ?"""
# An activation that gives 0 for what it does not let through: the share of it, by module.
_ZEROS = """SELECT coalesce(module, '') || ' ' || op, step, sum(zero)::DOUBLE / sum(size)
    FROM calls JOIN tensors USING (process, "index")
    WHERE rank = ? AND io = 'output' AND phase = 'forward' AND size > 1 AND op IN (SELECT unnest(?))
    GROUP BY ALL ORDER BY 1, step LIMIT ?"""


def training_document(tables: Tables) -> dict[str, Any] | None:
    """Lines over the steps, each a list of [step, value, count of what is not finite]; None for a
    run of a single step.
    """
    steps = tables.rows("SELECT count(DISTINCT step) FROM calls")[0][0]
    if steps < 2:
        return None
    ops = [op for (op,) in tables.rows("SELECT DISTINCT op FROM calls")]
    losses: dict[str, list[list[Any]]] = defaultdict(list)
    limit = MOST_LINES * MOST_STEPS
    named = [op for op in ops if traits_of(op).loss]
    for rank, name, step, value, wrong in tables.rows(_LOSSES, [named, limit]):
        losses[f"r{rank} {name}"].append([step, value, int(wrong or 0)])
    norms: dict[str, dict[str, list[list[Any]]]] = {"gradient": {}, "parameter": {}}
    rank = (tables.rows("SELECT min(rank) FROM calls")[0][0]) or 0
    for role, name, step, norm, wrong in tables.rows(_NORMS, [rank, limit]):
        norms[role].setdefault(name, []).append([step, norm, int(wrong or 0)])
    stops = [op for op in ops if traits_of(op).stops]
    zeros: dict[str, list[list[Any]]] = defaultdict(list)
    for name, step, share in tables.rows(_ZEROS, [rank, stops, limit]):
        zeros[name].append([step, share, 0])
    curves = {"losses": dict(losses), **norms, "zeros": dict(zeros)}
    return {
        "rank": rank,
        **{
            kind: [
                {"label": label, "points": points[-MOST_STEPS:]}
                for label, points in list(lines.items())[:MOST_LINES]
            ]
            for kind, lines in curves.items()
        },
    }
