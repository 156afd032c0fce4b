# SPDX-License-Identifier: Apache-2.0
"""Ranks beside one another: how each was in each step, its collectives in order, and where they
first part.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.judge.operators import is_collective
from opscope.run.keys import key
from opscope.run.query import rows_where
from opscope.view.columns import Groups
from opscope.view.references import reference_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opscope.arrays import Bools, Ints
    from opscope.run.finding import Finding
    from opscope.view.all_calls import AllCalls

MOST_RANKS, MOST_STEPS, MOST_COLLECTIVES = 256, 400, 400
_NEVER = np.iinfo(np.int64).max  # a number that no call has


def ranks_document(calls: AllCalls, findings: Sequence[Finding]) -> dict[str, Any] | None:
    """A matrix of ranks and steps, lanes of collectives, and the findings that tell ranks apart;
    None for a run of one rank.
    """
    rows = np.flatnonzero(calls.of_finest)
    ranks, steps = calls.numbers("rank")[rows], calls.numbers("step")[rows]
    groups = Groups(ranks, steps)
    lost = np.where(calls.results.unsound[rows], calls.keys[rows], _NEVER)
    cells: dict[str, list[Any]] = {}
    for rank, step, number, worst, first in zip(
        ranks[groups.first].tolist(),
        steps[groups.first].tolist(),
        groups.sizes.tolist(),
        groups.merged(np.maximum, calls.results.health[rows]).tolist(),
        groups.merged(np.minimum, lost).tolist(),
        strict=True,
    ):
        cells[f"{rank}/{step}"] = [number, worst, None if first == _NEVER else reference_of(first)]
    shown = np.unique(ranks)[:MOST_RANKS].tolist()
    if len(shown) < 2:
        return None
    for finding in findings:
        cell = cells.get(f"{finding.rank}/{finding.step}")
        if cell is not None and finding.kind != "rank-mismatch":
            cell[1] = 5
    lanes = _lanes(calls)
    return {
        "ranks": shown,
        "steps": np.unique(steps)[:MOST_STEPS].tolist(),
        "cells": cells,
        "lanes": lanes,
        "parts": _first_unlike(lanes),
    }


def _lanes(calls: AllCalls) -> dict[str, list[dict[str, Any]]]:
    """Collectives of each rank in the order it called them."""
    rows = np.flatnonzero(calls.of_finest & _collective(calls))
    rows = rows[np.lexsort((calls.keys[rows], calls.numbers("rank")[rows]))]
    ranks = Groups(calls.numbers("rank")[rows])
    first = [members[:MOST_COLLECTIVES] for members in ranks.members()]
    shown = rows[np.concatenate(first)] if first else rows
    sent = _sent(calls, shown)
    lanes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, rank, step, op, name in zip(
        calls.keys[shown].tolist(),
        calls.numbers("rank")[shown].tolist(),
        calls.numbers("step")[shown].tolist(),
        calls.texts("op").at(shown),
        calls.texts("name").at(shown),
        strict=True,
    ):
        lanes[str(rank)].append(
            {
                "id": reference_of(number),
                "step": step,
                "op": op,
                "name": name,
                "sent": sent.get(number),
            }
        )
    return dict(lanes)


def _sent(calls: AllCalls, rows: Ints) -> dict[int, str]:
    """Type and shape of what these calls read first, by number."""
    dtypes: dict[int, str] = {}
    shapes: dict[int, Sequence[int]] = {}
    for process, index, _, dtype, shape in rows_where(
        calls.run,
        "tensors",
        ("process", "index", "io", "dtype", "shape"),
        lambda batch: batch["io"] == "input",
        np.sort(calls.keys[rows]),
    ):
        dtypes.setdefault(key(process, index), dtype)
        if shape is not None:
            shapes.setdefault(key(process, index), shape)
    return {number: f"{dtype}{list(shapes.get(number, ()))}" for number, dtype in dtypes.items()}


def _collective(calls: AllCalls) -> Bools:
    """Which calls are of an operator that is a collective in any phase that it has here."""
    ops, phases = calls.texts("op"), calls.texts("phase")
    pairs = Groups(ops.numbers, phases.numbers).first
    told = zip(ops.at(pairs), phases.at(pairs), strict=True)
    collectives = frozenset(op for op, phase in told if is_collective(op, phase))
    return ops.which(collectives.__contains__)


def _first_unlike(lanes: dict[str, list[dict[str, Any]]]) -> int | None:
    """The first place at which ranks call different collectives, or one of them none; None where
    they agree.
    """
    shortest = min((len(lane) for lane in lanes.values()), default=0)
    for number in range(shortest):
        if len({(lane[number]["op"], lane[number]["sent"]) for lane in lanes.values()}) > 1:
            return number
    return shortest if len({len(lane) for lane in lanes.values()}) > 1 else None
