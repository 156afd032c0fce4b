# SPDX-License-Identifier: Apache-2.0
"""Graphs that torch.compile made, among the calls to judge.

Of a graph whose every result some recorded call inside of it made, those calls are judged and not
the graph. Any other graph is judged as one call, and what generated code called on the way is not:
fused kernels rewrote what it read. Where a graph was executed again, operator by operator, those
operators are judged in its place, and hand what they made on to the results of the graph
(docs/schema.md, `again`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.judge.reading import is_finite
from opscope.questions.tables import Tables
from opscope.run.keys import key

if TYPE_CHECKING:
    from opscope.questions.rows import Node, Row

_KINDS = ("nan", "pos_inf", "neg_inf")

# Every call inside of these graphs, however deep.
_INSIDE = """
    WITH RECURSIVE inside AS (
        SELECT process, "index", "index" AS graph FROM wanted
        UNION ALL
        SELECT c.process, c."index", inside.graph FROM calls c
        JOIN inside ON c.process = inside.process AND c.parent = inside."index")
    SELECT inside.process, inside."index", inside.graph, c.level FROM inside
    JOIN calls c ON c.process = inside.process AND c."index" = inside."index"
    WHERE inside."index" <> inside.graph
"""
# Results of calls, by the number of their state.
_MADE = """
    SELECT t.process, t."index", t.io, t.version FROM tensors t
    SEMI JOIN wanted USING (process, "index") WHERE t.version IS NOT NULL
"""


class Repetition(msgspec.Struct, frozen=True):
    """A graph that was executed again: its call's name, and whether that gave the same."""

    graph: str
    agrees: bool


class Judged(msgspec.Struct, frozen=True):
    """The calls to judge in their order, and what is known of the graphs that were executed again,
    by process and index.
    """

    nodes: list[Node]
    repeated: dict[tuple[int, int], Repetition] = {}


def resolve(tables: Tables, nodes: Sequence[Node]) -> Judged:
    """What is judged of these calls, which are in order within each process."""
    graphs = [node for node in nodes if node.level == "graph" and node.again is None]
    if not graphs:
        return Judged([node for node in nodes if node.again is None])
    inside = _inside(tables, graphs)
    opaque = {
        (node.process, node.index)
        for node in graphs
        if not _told_whole(tables, node, inside[node.process, node.index])
    }
    hidden = {(process, index) for process, graph in opaque for index, _ in inside[process, graph]}
    second: dict[tuple[int, int], list[Node]] = defaultdict(list)
    for node in nodes:
        if node.again is not None:
            second[node.process, node.again].append(node)
    judged: list[Node] = []
    repeated: dict[tuple[int, int], Repetition] = {}
    for node in nodes:
        call_id = (node.process, node.index)
        if node.again is not None or call_id in hidden:
            continue
        if node.level != "graph":
            judged.append(node)
        elif call_id in opaque:
            executed, repetition = _in_its_place(node, second.get(call_id, ()))
            judged += executed
            if repetition is not None:
                repeated[call_id] = repetition
    return Judged(judged, repeated)


def _inside(tables: Tables, graphs: Iterable[Node]) -> dict[tuple[int, int], list[tuple[int, str]]]:
    """Index and level of the calls inside of each graph."""
    wanted = np.array([key(node.process, node.index) for node in graphs], dtype=np.int64)
    calls: dict[tuple[int, int], list[tuple[int, str]]] = defaultdict(list)
    for process, index, graph, level in tables.rows(_INSIDE, wanted=wanted):
        calls[process, graph].append((index, level))
    return calls


def _told_whole(tables: Tables, graph: Node, inside: Sequence[tuple[int, str]]) -> bool:
    """Whether recorded calls inside of a graph made all that came out of it."""
    operators = {index for index, level in inside if level == "operator"}
    if not operators:
        return False
    wanted = np.array(
        [key(graph.process, index) for index in (graph.index, *operators)], dtype=np.int64
    )
    results: set[int] = set()
    known: set[int] = set()
    for _, index, io, version in tables.rows(_MADE, wanted=np.unique(wanted)):
        if index != graph.index:
            known |= {version} if io == "output" else set()
        elif io == "input":
            known.add(version)
        else:
            results.add(version)
    return results <= known


def _in_its_place(graph: Node, second: Sequence[Node]) -> tuple[list[Node], Repetition | None]:
    """What is judged for a graph: the operators of its second execution and what handed their
    results on, else the graph.
    """
    whole = next((node for node in second if node.level == "graph" and node.error is None), None)
    operators = [node for node in second if node.level == "operator"]
    if not operators or whole is None:
        return [graph], None
    made = {row.slot: row for row in whole.outputs}
    handing: list[Node] = []
    left: list[Row] = []
    agrees = True
    for row in graph.outputs:
        if is_finite(row):
            continue
        source = made.get(row.slot)
        if source is None or not any(
            getattr(source, kind) and getattr(row, kind) for kind in _KINDS
        ):
            left.append(row)
            agrees = False
            continue
        agrees = agrees and all(getattr(source, kind) == getattr(row, kind) for kind in _KINDS)
        handing.append(
            msgspec.structs.replace(graph, again=graph.index, inputs=[source], outputs=[row])
        )
    rest = [msgspec.structs.replace(graph, outputs=left)] if left else []
    if not handing:
        return rest, Repetition(graph.name, agrees=False)
    return [*operators, *handing, *rest], Repetition(graph.name, agrees=agrees)


def is_handing(node: Node) -> bool:
    """Whether a call stands for what a second execution hands on to the results of its graph."""
    return node.level == "graph" and node.again is not None
