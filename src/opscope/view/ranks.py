# SPDX-License-Identifier: Apache-2.0
"""Ranks beside one another: how each was in each step, its collectives in order, and where they
first part.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from opscope.judge.operators import is_collective
from opscope.view.grid import HEALTH
from opscope.view.references import finest_level, reference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opscope.questions.tables import Tables
    from opscope.run.finding import Finding

MOST_RANKS, MOST_STEPS, MOST_COLLECTIVES = 256, 400, 400
_MATRIX = f"""SELECT rank, step, count(DISTINCT (process, "index")),
    {HEALTH},
    (min((process, "index")) FILTER (WHERE nan + pos_inf > 0))
    FROM calls LEFT JOIN (SELECT * FROM tensors WHERE io = 'output') USING (process, "index")
    WHERE level = ? GROUP BY ALL ORDER BY rank, step"""  # noqa: S608 - built from fixed text
_COLLECTIVES = """SELECT rank, process, "index", step, op, name, any_value(dtype), any_value(shape)
    FROM calls LEFT JOIN (SELECT * FROM tensors WHERE io = 'input') USING (process, "index")
    WHERE op IN (SELECT unnest(?)) AND level = ? GROUP BY ALL ORDER BY rank, process, "index" """


def ranks_document(tables: Tables, findings: Sequence[Finding]) -> dict[str, Any] | None:
    """A matrix of ranks and steps, lanes of collectives, and the findings that tell ranks apart;
    None for a run of one rank.
    """
    level = finest_level(tables)
    rows = tables.rows(_MATRIX, [level])
    ranks = sorted({row[0] for row in rows})[:MOST_RANKS]
    if len(ranks) < 2:
        return None
    steps = sorted({row[1] for row in rows})[:MOST_STEPS]
    cells: dict[str, list[Any]] = {}
    for rank, step, calls, worst, first in rows:
        first_call = (
            None if first is None else tuple(first.values() if isinstance(first, dict) else first)
        )
        cells[f"{rank}/{step}"] = [
            calls,
            worst or 0,
            None if first_call is None else reference(*first_call),
        ]
    for finding in findings:
        cell = cells.get(f"{finding.rank}/{finding.step}")
        if cell is not None and finding.kind != "rank-mismatch":
            cell[1] = 5
    lanes = _lanes(tables, level)
    return {
        "ranks": ranks,
        "steps": steps,
        "cells": cells,
        "lanes": lanes,
        "parts": _first_unlike(lanes),
    }


def _lanes(tables: Tables, level: str) -> dict[str, list[dict[str, Any]]]:
    """Collectives of each rank in the order it called them."""
    rows = tables.rows("SELECT DISTINCT op, phase FROM calls")
    ops = sorted({op for op, phase in rows if is_collective(op, phase)})
    lanes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for rank, process, index, step, op, name, dtype, shape in tables.rows(
        _COLLECTIVES, [ops, level]
    ):
        if len(lanes[str(rank)]) < MOST_COLLECTIVES:
            lanes[str(rank)].append(
                {
                    "id": reference(process, index),
                    "step": step,
                    "op": op,
                    "name": name,
                    "sent": None if dtype is None else f"{dtype}{list(shape or ())}",
                }
            )
    return dict(lanes)


def _first_unlike(lanes: dict[str, list[dict[str, Any]]]) -> int | None:
    """The first place at which ranks call different collectives, or one of them none; None where
    they agree.
    """
    shortest = min((len(lane) for lane in lanes.values()), default=0)
    for number in range(shortest):
        if len({(lane[number]["op"], lane[number]["sent"]) for lane in lanes.values()}) > 1:
            return number
    return shortest if len({len(lane) for lane in lanes.values()}) > 1 else None
