# SPDX-License-Identifier: Apache-2.0
"""Calls as the page shows them: all columns, tensors with who made and who read them, partners,
stack with code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.judge.limits import largest_finite
from opscope.report.oneline import one_line, row_statistics
from opscope.run.keys import keys_at, keys_of, processes_of
from opscope.run.query import records_of, rows_where
from opscope.view.columns import Groups, read
from opscope.view.pictures import values_of
from opscope.view.references import Place, names_of, reference
from opscope.view.series import series_of

if TYPE_CHECKING:
    from opscope.arrays import Ints
    from opscope.run.schema import Call, Tensor
    from opscope.view.all_calls import AllCalls
    from opscope.view.sources import Sources

MOST_READERS = 8  # of a tensor, by reference; the others are counted
MOST_FRAMES = 40
MOST_PICTURES = 60  # of kept values, in a document
MOST_POINTS, FEW_POINTS = 250, 40  # of a tensor's history: of a call that is looked at, of others
MOST_TEXT = 4000  # characters of one text of a run


class Edges(msgspec.Struct, frozen=True):
    """Who made and who read each version, and which backward calls belong to a forward one."""

    made: dict[Place, int]
    read: dict[Place, tuple[list[int], int]]
    backward: dict[Place, list[int]]


def call_documents(
    calls: AllCalls, places: Sequence[Place], sources: Sources, *, points: int = MOST_POINTS
) -> dict[str, Any]:
    """Calls by reference, and under "names" what to call those that they point to.

    points is how many a tensor's range over the steps has at most.
    """
    wanted = keys_at(places)
    whole = list(records_of(calls.run, "calls", wanted))
    if not whole:
        return {"calls": {}, "names": {}}
    tensors: dict[Place, list[Tensor]] = defaultdict(list)
    for tensor in records_of(calls.run, "tensors", wanted):
        tensors[tensor.process, tensor.index].append(tensor)
    edges = _edges(calls, wanted, [tensor for each in tensors.values() for tensor in each])
    stacks = _stacks(calls, whole)
    ranges = series_of(calls, wanted, points)
    documents, pointed, drawn = {}, set(), 0
    for call in whole:
        document = _document(call, stacks, sources, edges)
        document["tensors"] = told = []
        for tensor in tensors[call.process, call.index]:
            series = ranges.get((call.name, call.rank, tensor.io, tensor.slot))
            told.append(_tensor(tensor, edges, series))
            if tensor.value is not None and drawn < MOST_PICTURES:
                told[-1]["picture"] = values_of(calls.run, tensor)
                drawn += told[-1]["picture"] is not None
        documents[reference(call.process, call.index)] = document
        pointed |= {(call.process, other) for other in _pointed(document)}
        pointed.add((call.process, call.index))
    return {"calls": documents, "names": names_of(calls.run, pointed)}


def _edges(calls: AllCalls, wanted: Ints, tensors: Sequence[Tensor]) -> Edges:
    """Who made and who read what these calls read and made."""
    known = {tensor.version for tensor in tensors if tensor.version is not None}
    versions = np.array(sorted(known), np.int64)
    processes = np.unique(processes_of(wanted))
    found = read(
        calls.run,
        "tensors",
        ("process", "index", "io", "version"),
        lambda batch: (
            np.isin(batch.numbers("version"), versions)
            & np.isin(batch.numbers("process"), processes)
            & batch.known("version")
        ),
    )
    process, index, version = (
        np.ma.getdata(found.numbers[name]) for name in ("process", "index", "version")
    )
    rows = calls.rows(keys_of(process, index))
    there = (rows >= 0) & calls.of_finest[rows]
    is_output = found.texts["io"].which(lambda io: io == "output")
    made, read_by = (
        _by_version(process[side], version[side], index[side])
        for side in (there & is_output, there & ~is_output)
    )
    return Edges(
        {each: makers[0] for each, (makers, _) in made.items()}, read_by, _backward(calls, wanted)
    )


def _by_version(process: Ints, version: Ints, index: Ints) -> dict[Place, tuple[list[int], int]]:
    """The first calls by process and version, in order, and how many there are."""
    order = np.argsort(index, kind="stable")
    groups = Groups(process[order], version[order])
    first = order[groups.first]
    places = zip(process[first].tolist(), version[first].tolist(), strict=True)
    return {
        place: (index[order[members[:MOST_READERS]]].tolist(), len(members))
        for place, members in zip(places, groups.members(), strict=True)
    }


def _backward(calls: AllCalls, wanted: Ints) -> dict[Place, list[int]]:
    """The backward calls of each of the wanted ones, in order."""
    process, forward = calls.numbers("process"), calls.numbers("forward_index", -1)
    rows = np.flatnonzero(np.isin(keys_of(process, forward), wanted))
    index = calls.numbers("index")[rows]
    order = np.argsort(index, kind="stable")
    backward: dict[Place, list[int]] = defaultdict(list)
    of = zip(process[rows][order].tolist(), forward[rows][order].tolist(), strict=True)
    for place, number in zip(of, index[order].tolist(), strict=True):
        backward[place].append(number)
    return backward


def _stacks(calls: AllCalls, shown: Sequence[Call]) -> dict[Place, list[str]]:
    wanted = keys_at((call.process, call.stack) for call in shown if call.stack is not None)
    if not len(wanted):
        return {}
    found = rows_where(
        calls.run,
        "stacks",
        ("process", "stack", "frames"),
        lambda batch: np.isin(keys_of(batch["process"], batch["stack"]), wanted),
    )
    return {(process, stack): list(frames) for process, stack, frames in found}


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
