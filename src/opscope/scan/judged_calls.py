# SPDX-License-Identifier: Apache-2.0
"""Which calls are judged: the finest recorded; and which tensors backward starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.judge.limits import is_float
from opscope.questions.rows import MAX_CALLS, MAX_UNREAD_CALLS, Node, Screen, load
from opscope.questions.tables import Tables
from opscope.run.keys import key, processes_of
from opscope.scan.dataflow import Identity, identity_of
from opscope.scan.graphs import Judged, resolve

if TYPE_CHECKING:
    from opscope.arrays import Ints

# The first call of each backward pass and the last one before it, at the finest level recorded.
_TURNS = """
    SELECT process, before, after, previous FROM (
        SELECT process, phase, "index" AS after, lag(phase) OVER calls_of AS previous,
        lag("index") OVER calls_of AS before
        FROM calls
        WHERE again IS NULL AND level IN ('graph', (SELECT level FROM calls
        ORDER BY CASE level WHEN 'operator' THEN 0 WHEN 'api' THEN 1 ELSE 2 END LIMIT 1))
        WINDOW calls_of AS (PARTITION BY process ORDER BY "index"))
    WHERE phase = 'backward' AND previous IN ('forward', 'optimizer')
"""
_ONES = """SELECT process, "index" FROM calls WHERE op = 'aten::ones_like.default'"""
_NEAR = 8  # calls between the gradient of ones and the first node


def suspicious_calls(tables: Tables, screened: Screen) -> tuple[Judged, int]:
    """The calls to judge, in order within each process, and how many were left out because they are
    too many.

    Calls whose tensors were not read are among them, so that damage is followed through what nobody
    looked at.
    """
    wanted = np.union1d(screened.bad, screened.odd)
    if screened.bad.size and screened.unread.size <= MAX_UNREAD_CALLS:
        wanted = np.union1d(wanted, screened.unread)
    left_out = max(0, len(wanted) - MAX_CALLS)
    nodes = load(tables, _earliest(wanted, MAX_CALLS))
    ordered = sorted(_finest(tables, nodes), key=lambda node: (node.process, node.index))
    return resolve(tables, ordered), left_out


def _earliest(wanted: Ints, limit: int) -> Ints:
    """The first calls of every process, so that no process is left out for another."""
    if len(wanted) <= limit:
        return wanted
    processes, counts = np.unique(processes_of(wanted), return_counts=True)
    share = limit // len(processes)
    starts = np.cumsum(counts) - counts
    return np.concatenate(
        [
            wanted[start : start + min(int(count), share)]
            for start, count in zip(starts, counts, strict=True)
        ]
    )


def _finest(tables: Tables, nodes: dict[int, Node]) -> list[Node]:
    """Operators where there are any; of the coarser levels only calls inside which nothing was
    recorded.
    """
    if all(node.level == "operator" for node in nodes.values()):
        return list(nodes.values())
    parent_rows = tables.rows("SELECT DISTINCT process, parent FROM calls WHERE parent IS NOT NULL")
    parents = {key(process, parent) for process, parent in parent_rows}
    return [
        node
        for node in nodes.values()
        if node.level in {"operator", "graph"} or key(node.process, node.index) not in parents
    ]


def losses(tables: Tables, nodes: list[Node]) -> frozenset[Identity]:
    """Tensors that backward starts from, of those in these nodes.

    PyTorch makes a gradient of ones like the loss just before it runs the first node, so the root
    is what that call reads; where there is no such call, it is the single-element output of the
    last forward call before backward.
    """
    known = {key(node.process, node.index): node for node in nodes}
    turns = tables.rows(_TURNS)
    ones = {key(process, index) for process, index in tables.rows(_ONES)}
    identities: set[Identity] = set()
    for process, before, after, previous in turns:
        near = [
            key(process, index)
            for index in range(max(0, after - _NEAR), after + 3)
            if key(process, index) in ones
        ]
        if near:
            rows = [row for call_key in near if call_key in known for row in known[call_key].inputs]
        elif previous == "forward":
            last = known.get(key(process, before))
            rows = (
                [row for row in last.outputs if row.size == 1 and is_float(row.dtype)]
                if last is not None
                else []
            )
        else:
            rows = []
        identities.update(identity for row in rows if (identity := identity_of(row)) is not None)
    return frozenset(identities)
