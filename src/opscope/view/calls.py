# SPDX-License-Identifier: Apache-2.0
"""Calls as the page shows them: all columns, tensors with who made and who read them, partners,
stack with code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.judge.limits import largest_finite
from opscope.questions.rows import whole_calls
from opscope.report.oneline import one_line, row_statistics
from opscope.view.pictures import values_of
from opscope.view.references import Place, finest_level, keys_of_places, names_of, reference

if TYPE_CHECKING:
    from opscope.questions.tables import Tables
    from opscope.run.schema import Call, Tensor
    from opscope.view.sources import Sources

MOST_READERS = 8  # of a tensor, by reference; the others are counted
MOST_FRAMES = 40
MOST_PICTURES = 60  # of kept values, in a document
MOST_POINTS, FEW_POINTS = 250, 40  # of a tensor's history: of a call that is looked at, of others
MOST_TEXT = 4000  # characters of one text of a run
_MADE = """SELECT process, version, min("index") FROM tensors
    JOIN calls USING (process, "index")
    SEMI JOIN (SELECT process, version FROM near_tensors SEMI JOIN wanted USING (process, "index")
        WHERE io = 'input' AND version IS NOT NULL) USING (process, version)
    WHERE io = 'output' AND level = ? GROUP BY ALL"""
_READ = """SELECT process, version, list("index" ORDER BY "index")[:?], count(*) FROM tensors
    JOIN calls USING (process, "index")
    SEMI JOIN (SELECT process, version FROM near_tensors SEMI JOIN wanted USING (process, "index")
        WHERE io = 'output' AND version IS NOT NULL) USING (process, version)
    WHERE io = 'input' AND level = ? GROUP BY ALL"""
_BACKWARD = """SELECT process, forward_index, "index" FROM calls
    SEMI JOIN (SELECT process, "index" AS forward_index FROM wanted) USING (process, forward_index)
    ORDER BY "index" """
# Steps that lie together are one point: the least, the largest, and how many are not finite.
_SERIES = """SELECT name, rank, io, slot, step - step % ? AS first, min(min), max(max),
    sum(coalesce(nan, 0) + coalesce(pos_inf, 0) + coalesce(neg_inf, 0))::BIGINT
    FROM tensors JOIN calls USING (process, "index")
    SEMI JOIN (SELECT name, rank FROM near_calls SEMI JOIN wanted USING (process, "index"))
    USING (name, rank) WHERE size IS NOT NULL GROUP BY ALL ORDER BY first"""


class Edges(msgspec.Struct, frozen=True):
    """Who made and who read each version, and which backward calls belong to a forward one."""

    made: dict[Place, int]
    read: dict[Place, tuple[list[int], int]]
    backward: dict[Place, list[int]]


def call_documents(
    tables: Tables, places: Sequence[Place], sources: Sources, *, points: int = MOST_POINTS
) -> dict[str, Any]:
    """Calls by reference, and under "names" what to call those that they point to.

    points is how many a tensor's range over the steps has at most.
    """
    wanted = keys_of_places(places)
    whole = whole_calls(tables, wanted)
    if not whole:
        return {"calls": {}, "names": {}}
    edges = _edges(tables, wanted)
    stacks = _stacks(tables, [call for call, _ in whole.values()])
    ranges = _ranges(tables, wanted, points)
    documents, pointed, drawn = {}, set(), 0
    for call, tensors in whole.values():
        document = _document(call, stacks, sources, edges)
        document["tensors"] = [
            _tensor(tensor, edges, ranges.get((call.name, call.rank, tensor.io, tensor.slot)))
            for tensor in tensors
        ]
        for tensor, told in zip(tensors, document["tensors"], strict=True):
            if tensor.value is not None and drawn < MOST_PICTURES:
                told["picture"] = values_of(tables.run, tensor)
                drawn += told["picture"] is not None
        documents[reference(call.process, call.index)] = document
        pointed |= {(call.process, other) for other in _pointed(document)}
        pointed.add((call.process, call.index))
    return {"calls": documents, "names": names_of(tables, pointed)}


def _edges(tables: Tables, wanted: Any) -> Edges:
    level = finest_level(tables)
    made = tables.rows(_MADE, [level], wanted=wanted)
    read = tables.rows(_READ, [MOST_READERS, level], wanted=wanted)
    backward: dict[Place, list[int]] = defaultdict(list)
    for process, forward, index in tables.rows(_BACKWARD, wanted=wanted):
        backward[process, forward].append(index)
    return Edges(
        {(process, version): index for process, version, index in made},
        {(process, version): (list(readers), count) for process, version, readers, count in read},
        dict(backward),
    )


def _stacks(tables: Tables, calls: Sequence[Call]) -> dict[Place, list[str]]:
    wanted = {(call.process, call.stack) for call in calls if call.stack is not None}
    rows = tables.rows("SELECT process, stack, frames FROM stacks") if wanted else []
    return {
        (process, stack): list(frames)
        for process, stack, frames in rows
        if (process, stack) in wanted
    }


def _ranges(tables: Tables, wanted: Any, points: int) -> dict[tuple[Any, ...], list[list[Any]]]:
    """Step, least, largest and count of what is not finite, by name, rank, io and slot."""
    (steps,) = tables.rows("SELECT coalesce(max(step) - min(step), 0) + 1 FROM calls")[0]
    together = -(-steps // points)
    series: dict[tuple[Any, ...], list[list[Any]]] = defaultdict(list)
    for name, rank, io, slot, step, low, high, wrong in tables.rows(
        _SERIES, [together], wanted=wanted
    ):
        series[name, rank, io, slot].append([step, _short(low), _short(high), wrong])
    return series


def _short(value: float | None) -> float | None:
    """Five digits: a line of a chart shows no more."""
    return None if value is None else float(f"{value:.5g}")


def _document(
    call: Call, stacks: dict[Place, list[str]], sources: Sources, edges: Edges
) -> dict[str, Any]:
    frames = [] if call.stack is None else stacks.get((call.process, call.stack), [])
    known = {
        name: value
        for name, value in msgspec.structs.asdict(call).items()
        if value is not None and name != "stack"
    }
    if isinstance(known.get("args"), str):
        known["args"] = known["args"][:MOST_TEXT]
    return {
        **known,
        "id": reference(call.process, call.index),
        "code": sources.context(call.source),
        "frames": [
            {"place": frame, "code": sources.text(frame)}
            for frame in frames[:MOST_FRAMES]
            if "/site-packages/" not in frame
        ],
        "foreign": sum("/site-packages/" in frame for frame in frames),
        "backward": edges.backward.get((call.process, call.index), [])[:MOST_READERS],
    }


def _tensor(tensor: Tensor, edges: Edges, series: list[list[Any]] | None) -> dict[str, Any]:
    stats = row_statistics(tensor)
    version = None if tensor.version is None else (tensor.process, tensor.version)
    document: dict[str, Any] = {
        "io": tensor.io,
        "slot": tensor.slot,
        "line": one_line(tensor.dtype, tensor.shape, stats, full=True),
        "brief": one_line(tensor.dtype, tensor.shape, stats),
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "stats": stats,
        "limit": largest_finite(tensor.dtype),
        "kept": tensor.value is not None,
    }
    for name in ("tensor_name", "role", "device", "layout", "stride", "version", "storage"):
        value = getattr(tensor, name)
        if value is not None:
            document[name] = value
    if tensor.digest is not None:
        document["digest"] = f"{tensor.digest:#018x}"
    if version is not None and tensor.io == "input" and edges.made.get(version) != tensor.index:
        document["maker"] = edges.made.get(version)
    if version is not None and tensor.io == "output" and version in edges.read:
        document["readers"], document["readings"] = edges.read[version]
    if series is not None and len(series) > 1:
        document["series"] = series
    return document


def _pointed(document: dict[str, Any]) -> set[int]:
    """Numbers of the calls that a document points to, in its own process."""
    numbers = {*document["backward"]}
    numbers |= {document[name] for name in ("parent", "forward_index") if name in document}
    for tensor in document["tensors"]:
        numbers |= {tensor["maker"]} if tensor.get("maker") is not None else set()
        numbers |= set(tensor.get("readers", ()))
    return numbers
