# SPDX-License-Identifier: Apache-2.0
"""The model as a tree: of each module how many calls it made, the worst of them, and how large its
results were over the steps; and how data flows between the parts of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.run.keys import keys_of
from opscope.view.all_calls import UNKNOWN
from opscope.view.columns import Groups, read
from opscope.view.layout import chain
from opscope.view.references import reference_of

if TYPE_CHECKING:
    from opscope.arrays import Ints
    from opscope.run.finding import Finding
    from opscope.view.all_calls import AllCalls

MOST_POINTS = 60  # of a sparkline
MOST_MODULES, MOST_PARTS = 5000, 60
_NEVER = np.iinfo(np.int64).max  # a number that no call has


class Part(msgspec.Struct):
    """A module with what is below it."""

    calls: int = 0
    worst: int = 0
    own: int = 0
    first: int | None = None  # the number of the call
    line: dict[int, float] = {}


def model_document(calls: AllCalls, findings: Sequence[Finding]) -> dict[str, Any]:
    """Modules by path, each with its parts; "" is the model itself."""
    steps = int(calls.numbers("step").max(initial=0)) + 1
    points = min(MOST_POINTS, steps)
    parts: dict[str, Part] = defaultdict(Part)
    for module, point, number, worst, largest, first in _modules(calls, points, steps):
        if module not in parts and len(parts) >= MOST_MODULES:
            continue
        parts[module].own += number
        for path in above(module):
            _add(parts[path], number, worst, (point, largest), first)
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
                "first": None if part.first is None else reference_of(part.first),
                "line": [part.line.get(point) for point in range(points)],
                "parts": sorted(children.get(path, ()), key=_natural),
            }
            for path, part in parts.items()
        },
        "flows": _flows(calls, children, findings),
    }


def _modules(calls: AllCalls, points: int, steps: int) -> Iterator[tuple[Any, ...]]:
    """Of each module in each part of the steps: its calls, the worst of them, the largest
    magnitude, None where none is known, and the number of the first that lost elements.
    """
    rows = np.flatnonzero(calls.of_finest)
    modules = calls.texts("module").filled()
    part = calls.numbers("step")[rows].astype(np.int64) * points // steps
    groups, results = Groups(part, modules.numbers[rows]), calls.results
    lost = np.where(results.unsound[rows], calls.keys[rows], _NEVER)
    largest = groups.merged(np.maximum, results.largest[rows]).tolist()
    first = groups.merged(np.minimum, lost).tolist()
    yield from zip(
        modules.at(rows[groups.first]),
        part[groups.first].tolist(),
        groups.sizes.tolist(),
        groups.merged(np.maximum, results.health[rows]).tolist(),
        (None if each == UNKNOWN else each for each in largest),
        (None if each == _NEVER else each for each in first),
        strict=True,
    )


def above(module: str) -> Iterable[str]:
    """A path and all that hold it, the model itself ("") among them."""
    yield module
    while module:
        module = module.rpartition(".")[0]
        yield module


def _add(
    part: Part, calls: int, worst: int, point: tuple[int, float | None], first: int | None
) -> None:
    part.calls += calls
    part.worst = max(part.worst, worst)
    place, largest = point
    if largest is not None:
        part.line[place] = max(part.line.get(place, 0.0), float(f"{largest:.3g}"))
    if first is not None:
        part.first = first if part.first is None else min(part.first, first)


def _natural(path: str) -> list[tuple[bool, int, str]]:
    """Numbers by value: blocks.2 before blocks.10."""
    return [
        (not part.isdecimal(), int(part) if part.isdecimal() and len(part) < 9 else 0, part)
        for part in path.split(".")
    ]


def _flows(
    calls: AllCalls, children: dict[str, list[str]], findings: Sequence[Finding]
) -> dict[str, Any]:
    """For each module with parts, how data flows between them in the forward pass of one step."""
    rank, step = (findings[0].rank, findings[0].step) if findings else _a_step(calls)
    chosen = calls.of_finest & (calls.numbers("rank") == rank) & (calls.numbers("step") == step)
    chosen &= calls.texts("phase").which(lambda phase: phase == "forward")
    rows = np.flatnonzero(chosen)
    first: dict[str, int] = {}
    modules = calls.texts("module").filled().at(rows)
    for module, index in zip(modules, calls.numbers("index")[rows].tolist(), strict=True):
        for path in above(module):
            first[path] = min(index, first.get(path, index))
    edges = _edges(calls, rows)
    flows = {}
    for path, below in children.items():
        order = sorted((part for part in below if part in first), key=first.__getitem__)
        if 1 < len(order) <= MOST_PARTS:
            flows[path] = chain(order, sorted(_between(edges, path)))
    return flows


def _edges(calls: AllCalls, rows: Ints) -> list[tuple[int, str, int, str]]:
    """Which of these calls reads what another one made first: number and module of the reader,
    then of the maker, in the order of the readers.
    """
    found = read(
        calls.run,
        "tensors",
        ("process", "index", "io", "version"),
        lambda batch: batch.known("version"),
        np.sort(calls.keys[rows]),
    )
    process, index, version = (
        np.ma.getdata(found.numbers[name]) for name in ("process", "index", "version")
    )
    made = found.texts["io"].which(lambda io: io == "output")
    versions = Groups(process, version)
    maker = versions.merged(np.minimum, np.where(made, index, _NEVER))[versions.numbers]
    reading = ~made & (maker < index)
    process, index, maker = process[reading], index[reading], maker[reading]
    edges = Groups(index, maker, process).first
    process, index, maker = process[edges], index[edges], maker[edges]
    modules = calls.texts("module").filled()
    return list(
        zip(
            index.tolist(),
            modules.at(calls.rows(keys_of(process, index))),
            maker.tolist(),
            modules.at(calls.rows(keys_of(process, maker))),
            strict=True,
        )
    )


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


def _a_step(calls: AllCalls) -> tuple[int, int]:
    """Rank and step of the most calls, of several the first."""
    rank, step = calls.numbers("rank"), calls.numbers("step")
    groups = Groups(rank, step)
    if not len(groups):
        return 0, 0
    first = groups.first[np.argmax(groups.sizes)]
    return int(rank[first]), int(step[first])
