# SPDX-License-Identifier: Apache-2.0
"""Where the nodes of a path stand: one under the other, what else they read beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

WIDTH, HEIGHT = 268, 46  # of a node, CSS pixels
GAP_X, GAP_Y = 44, 22
FIRST, LAST = 20, 12  # nodes of a long path that are shown


class Node(msgspec.Struct, frozen=True):
    """A call of a graph; folded counts the calls that it stands for where a long path was cut."""

    id: str
    x: int
    y: int
    folded: int = 0


class Edge(msgspec.Struct, frozen=True):
    """From one place to another, as the points of a line."""

    source: str
    target: str
    points: tuple[tuple[int, int], ...]


class Layout(msgspec.Struct, frozen=True):
    """Nodes, edges, and the size of the whole in CSS pixels."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    width: int
    height: int


def shown(path: Sequence[str]) -> list[tuple[str, int]]:
    """The calls of a path that are drawn, each with how many are folded behind it."""
    if len(path) <= FIRST + LAST + 1:
        return [(call, 0) for call in path]
    cut = path[FIRST:-LAST]
    first, last = path[:FIRST], path[-LAST:]
    return [*((call, 0) for call in first), (cut[0], len(cut)), *((call, 0) for call in last)]


def lay_out(path: Sequence[tuple[str, int]], beside: Mapping[str, Sequence[str]]) -> Layout:
    """A spine of calls from top to bottom; beside has what else a call of it reads, by call.

    A call beside stands to the right of its first reader, and only once; those of one reader
    stand one under the other, and the spine makes room for them.
    """
    nodes: list[Node] = []
    places: dict[str, tuple[int, int]] = {}
    y = 0
    for call, folded in path:
        others = [other for other in beside.get(call, ()) if other not in places]
        nodes.append(Node(call, 0, y, folded))
        places[call] = (0, y)
        for row, other in enumerate(others):
            corner = (WIDTH + GAP_X, y + row * (HEIGHT + GAP_Y // 2))
            places[other] = corner
            nodes.append(Node(other, *corner))
        y += max(1, len(others)) * (HEIGHT + GAP_Y // 2) + GAP_Y // 2
    edges = [_down(above, below, places) for (above, _), (below, _) in pairwise(path)]
    edges += [
        _across(other, call, places)
        for call, others in beside.items()
        if call in places
        for other in others
        if other in places and places[other][0]
    ]
    width = max((node.x for node in nodes), default=0) + WIDTH
    return Layout(tuple(nodes), tuple(edges), width, max(0, y - GAP_Y))


def _down(above: str, below: str, places: dict[str, tuple[int, int]]) -> Edge:
    (x, y), (to_x, to_y) = places[above], places[below]
    return Edge(above, below, ((x + 22, y + HEIGHT), (to_x + 22, to_y)))


def _across(other: str, call: str, places: dict[str, tuple[int, int]]) -> Edge:
    (x, y), (to_x, to_y) = places[other], places[call]
    middle, end = y + HEIGHT // 2, to_y + HEIGHT // 2
    turn = x - GAP_X // 2
    return Edge(other, call, ((x, middle), (turn, middle), (turn, end), (to_x + WIDTH, end)))


def chain(order: Sequence[str], edges: Sequence[tuple[str, str]]) -> Layout:
    """Parts one under the other in the order they run; what skips some goes round them to the
    right, the longer the further out.
    """
    row = {name: number for number, name in enumerate(order)}
    down = HEIGHT + GAP_Y
    nodes = tuple(Node(name, 0, row[name] * down) for name in order)
    drawn, furthest = [], 0
    for one, other in edges:
        above, below = row[one], row[other]
        if below <= above:
            continue
        if below == above + 1:
            points = ((22, above * down + HEIGHT), (22, below * down))
            drawn.append(Edge(one, other, points))
            continue
        out = WIDTH + 14 + 12 * min(below - above, 12)
        furthest = max(furthest, out)
        start, end = above * down + HEIGHT // 2 + 6, below * down + HEIGHT // 2 - 6
        drawn.append(Edge(one, other, ((WIDTH, start), (out, start), (out, end), (WIDTH, end))))
    width = max(WIDTH, furthest) + GAP_X
    return Layout(nodes, tuple(drawn), width, max(0, len(order) * down - GAP_Y))
