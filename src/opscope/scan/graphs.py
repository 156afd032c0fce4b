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
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.judge.reading import is_finite
from opscope.run.keys import key, keys_of
from opscope.run.query import rows_of, rows_where

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Ints
    from opscope.questions.rows import Node, Row
    from opscope.run.protocol import Run

_KINDS = ("nan", "pos_inf", "neg_inf")


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


def resolve(run: Run, nodes: Sequence[Node]) -> Judged:
    """What is judged of these calls, which are in order within each process."""
    graphs = [node for node in nodes if node.level == "graph" and node.again is None]
    if not graphs:
        return Judged([node for node in nodes if node.again is None])
    inside = _inside(run, [key(node.process, node.index) for node in graphs])
    opaque = _opaque(run, inside)
    hidden = {call for graph in opaque for call in inside[graph]}
    second: dict[tuple[int, int], list[Node]] = defaultdict(list)
    for node in nodes:
        if node.again is not None:
            second[node.process, node.again].append(node)
    judged: list[Node] = []
    repeated: dict[tuple[int, int], Repetition] = {}
    for node in nodes:
        call_id, number = (node.process, node.index), key(node.process, node.index)
        if node.again is not None or number in hidden:
            continue
        if node.level != "graph":
            judged.append(node)
        elif number in opaque:
            executed, repetition = _in_its_place(node, second.get(call_id, ()))
            judged += executed
            if repetition is not None:
                repeated[call_id] = repetition
    return Judged(judged, repeated)


def _inside(run: Run, graphs: Sequence[int]) -> dict[int, set[int]]:
    """The calls inside of each graph, however deep."""
    inside: dict[int, set[int]] = {graph: set() for graph in graphs}
    around = {graph: [graph] for graph in graphs}  # of calls of one depth, the graphs around them
    while around:
        deeper: dict[int, list[int]] = {}
        for parent, call in _children(run, np.array(sorted(around), dtype=np.int64)):
            # in a damaged run a call may be inside of itself
            new = [graph for graph in around[parent] if call not in inside[graph]]
            if new:
                deeper[call] = new
            for graph in new:
                inside[graph].add(call)
        around = deeper
    return inside


def _children(run: Run, parents: Ints) -> Iterator[tuple[int, int]]:
    """Each of these calls with one right inside of it."""

    def within(batch: Mapping[str, Array]) -> Bools:
        known = ~np.ma.getmaskarray(batch["parent"])
        return known & np.isin(keys_of(batch["process"], np.ma.getdata(batch["parent"])), parents)

    for process, parent, index in rows_where(run, "calls", ("process", "parent", "index"), within):
        yield key(process, parent), key(process, index)


def _opaque(run: Run, inside: Mapping[int, Set[int]]) -> frozenset[int]:
    """Graphs of which some result was made by no recorded operator inside of them."""
    within = np.array(sorted(set().union(*inside.values())), dtype=np.int64)
    levels = rows_of(run, "calls", ("process", "index", "level"), within)
    operators = {key(process, index) for process, index, level in levels if level == "operator"}
    states: dict[tuple[int, str], set[int]] = defaultdict(set)
    asked = np.array(sorted(operators.union(inside)), dtype=np.int64)
    columns = ("process", "index", "io", "version")
    for process, index, io, version in rows_of(run, "tensors", columns, asked):
        if version is not None:
            states[key(process, index), io].add(version)

    def told(graph: int, calls: Set[int]) -> bool:
        own = operators.intersection(calls)
        made = states[graph, "input"].union(*(states[call, "output"] for call in own))
        return bool(own) and states[graph, "output"] <= made

    return frozenset(graph for graph, calls in inside.items() if not told(graph, calls))


def _in_its_place(graph: Node, second: Sequence[Node]) -> tuple[list[Node], Repetition | None]:
    """What is judged for a graph: the operators of its second execution and what handed their
    results on, else the graph.
    """
    whole = next((node for node in second if node.level == "graph" and node.error is None), None)
    operators = [node for node in second if node.level == "operator"]
    if not operators or whole is None:
        return [graph], None
    if all(map(is_finite, graph.outputs)):
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
