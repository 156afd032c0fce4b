# SPDX-License-Identifier: Apache-2.0
"""The model as a tree: of each module how many calls it made, the worst of them, and how large its
results were over the steps; and how data flows between the parts of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.view.grid import HEALTH
from opscope.view.layout import chain
from opscope.view.references import finest_level, reference

if TYPE_CHECKING:
    from opscope.questions.tables import Tables
    from opscope.run.finding import Finding

MOST_POINTS = 60  # of a sparkline
MOST_MODULES, MOST_PARTS = 5000, 60
_MODULES = f"""SELECT coalesce(module, ''), step * ? // ? AS part,
    count(DISTINCT (process, "index")),
    {HEALTH},
    max(greatest(abs(min), abs(max))),
    min((process, "index")) FILTER (WHERE nan + pos_inf > 0)
    FROM calls LEFT JOIN (SELECT * FROM tensors WHERE io = 'output') USING (process, "index")
    WHERE level = ? GROUP BY ALL ORDER BY part"""  # noqa: S608 - built from fixed text
_FIRST = """SELECT coalesce(module, ''), min("index") FROM calls
    WHERE level = ? AND rank = ? AND step = ? AND phase = 'forward' GROUP BY ALL"""
_FLOW = """WITH here AS (SELECT process, "index", coalesce(module, '') AS module FROM calls
        WHERE level = ? AND rank = ? AND step = ? AND phase = 'forward'),
    made AS (SELECT process, version, min("index") AS "index" FROM tensors
        SEMI JOIN here USING (process, "index") WHERE io = 'output' AND version IS NOT NULL
        GROUP BY ALL)
    SELECT DISTINCT tensors."index", reader.module, maker."index", maker.module FROM tensors
    JOIN here reader USING (process, "index") JOIN made USING (process, version)
    JOIN here maker ON maker.process = made.process AND maker."index" = made."index"
    WHERE io = 'input' AND maker."index" < tensors."index" ORDER BY tensors."index" """


class Part(msgspec.Struct):
    """A module with what is below it."""

    calls: int = 0
    worst: int = 0
    own: int = 0
    first: tuple[int, int] | None = None
    line: dict[int, float] = {}


def model_document(tables: Tables, findings: Sequence[Finding]) -> dict[str, Any]:
    """Modules by path, each with its parts; "" is the model itself."""
    level = finest_level(tables)
    (steps,) = tables.rows("SELECT coalesce(max(step), 0) + 1 FROM calls")[0]
    points = min(MOST_POINTS, steps)
    parts: dict[str, Part] = defaultdict(Part)
    for module, point, calls, worst, largest, first in tables.rows(
        _MODULES, [points, steps, level]
    ):
        if module not in parts and len(parts) >= MOST_MODULES:
            continue
        parts[module].own += calls
        for path in above(module):
            _add(parts[path], calls, worst or 0, (point, largest), first)
    for finding in findings:
        for path in above(finding.module or ""):
            parts[path].worst = 5
    children: dict[str, list[str]] = defaultdict(list)
    for path in parts:
        if path:
            children[path.rpartition(".")[0]].append(path)
    return {
        "points": points,
        "steps": steps,
        "modules": {
            path: {
                "calls": part.calls,
                "own": part.own,
                "worst": part.worst,
                "first": None if part.first is None else reference(*part.first),
                "line": [part.line.get(point) for point in range(points)],
                "parts": sorted(children.get(path, ()), key=_natural),
            }
            for path, part in parts.items()
        },
        "flows": _flows(tables, level, children, findings),
    }


def above(module: str) -> Iterable[str]:
    """A path and all that hold it, the model itself ("") among them."""
    yield module
    while module:
        module = module.rpartition(".")[0]
        yield module


def _add(part: Part, calls: int, worst: int, point: tuple[int, float | None], first: Any) -> None:
    part.calls += calls
    part.worst = max(part.worst, worst)
    place, largest = point
    if largest is not None:
        part.line[place] = max(part.line.get(place, 0.0), float(f"{largest:.3g}"))
    if first is not None:
        first_call = tuple(first.values()) if isinstance(first, dict) else tuple(first)
        place_ = (int(first_call[0]), int(first_call[1]))
        part.first = place_ if part.first is None else min(part.first, place_)


def _natural(path: str) -> list[tuple[bool, int, str]]:
    """Numbers by value: blocks.2 before blocks.10."""
    return [
        (not part.isdecimal(), int(part) if part.isdecimal() and len(part) < 9 else 0, part)
        for part in path.split(".")
    ]


def _flows(
    tables: Tables, level: str, children: dict[str, list[str]], findings: Sequence[Finding]
) -> dict[str, Any]:
    """For each module with parts, how data flows between them in the forward pass of one step."""
    rank, step = (findings[0].rank, findings[0].step) if findings else _a_step(tables)
    first: dict[str, int] = {}
    for module, index in tables.rows(_FIRST, [level, rank, step]):
        for path in above(module):
            first[path] = min(index, first.get(path, index))
    edges = tables.rows(_FLOW, [level, rank, step])
    flows = {}
    for path, below in children.items():
        order = sorted((part for part in below if part in first), key=first.__getitem__)
        if 1 < len(order) <= MOST_PARTS:
            flows[path] = chain(order, sorted(_between(edges, path)))
    return flows


def _between(edges: Sequence[tuple[int, str, int, str]], path: str) -> set[tuple[str, str]]:
    """Which parts of a module read what which others made, through calls of the module itself too.

    edges are reader and maker of tensors, number and module each, in the order of the readers.
    """
    made: dict[int, set[str]] = defaultdict(set)  # by call of the module itself: parts it is from
    pairs = set()
    for reader, reader_module, maker, maker_module in edges:
        part, by = _part(maker_module, path), _part(reader_module, path)
        makers = made[maker] if part is None else {part}
        if by is not None:
            pairs |= {(one, by) for one in makers if one != by}
        elif reader_module == path:
            made[reader] |= makers
    return pairs


def _part(module: str, of: str) -> str | None:
    """Which part of a module another one is in or is; None outside of it."""
    if of and not module.startswith(f"{of}."):
        return None
    rest = module[len(of) + 1 :] if of else module
    head = rest.partition(".")[0]
    return f"{of}.{head}" if of and head else head or None


def _a_step(tables: Tables) -> tuple[int, int]:
    rows = tables.rows(
        "SELECT rank, step FROM calls GROUP BY ALL ORDER BY count(*) DESC, rank, step LIMIT 1"
    )
    return (rows[0][0], rows[0][1]) if rows else (0, 0)
