# SPDX-License-Identifier: Apache-2.0
"""Operators that carry NaN from one row into another, though they work row by row.

A row is what lies at one index of the first dimension: a sample, a token. How many rows of a tensor
are not finite is counted where that is new (`unsound_places` in process.json), and bounded
from there on: by views that split or merge that dimension, by operators that keep rows apart, and
by how many elements are not finite. What holds more NaN than so many rows have elements has mixed
them. Where a bound is not known nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from opscope.judge.arguments import parse_arguments
from opscope.operators.catalogue import family, traits_of
from opscope.questions.findings import Accusation
from opscope.scan.dataflow import identity_of

if TYPE_CHECKING:
    from opscope.questions.rows import Node, Row

NOTE = "unsound_places"
# Squared and summed over 2^20 terms this is finite in float32: no NaN comes of such values.
TAME = {"float32": 1e15, "bfloat16": 1e15, "float64": 1e120, "float16": 1e2}
# a state of memory, and which elements of it in which order: a transposed view has the same version
Place = tuple[object, tuple[int, ...], tuple[int, ...], int | None]
Bounds = dict[Place, int]


def row_crossings(
    nodes: Iterable[Node], notes: Mapping[int, Mapping[str, Any]]
) -> list[Accusation]:
    """A finding for each operator that works row by row and mixed rows; nodes in their order, notes
    of each process as process.json has them.
    """
    counted = {process: told for process, told in notes.items() if told.get(NOTE)}
    return list(_crossings(nodes, counted)) if counted else []


def rows_at(places: str, row: Row) -> list[tuple[int, int]] | None:
    """First and last index along the first dimension of each run of rows that hold these elements,
    told as "3,7-9" in C order; None for a text that is no such list.
    """
    length, runs = _length(row), list[tuple[int, int]]()
    if not places or not length or not row.size:
        return None
    for part in places.split(","):
        first, _, last = part.partition("-")
        if not (first.isdigit() and (last or first).isdigit() and int(last or first) < row.size):
            return None
        begin, end = int(first) // length, int(last or first) // length
        if runs and begin <= runs[-1][1] + 1:
            begin = runs.pop()[0]
        runs.append((begin, end))
    return runs


def _crossings(
    nodes: Iterable[Node], notes: Mapping[int, Mapping[str, Any]]
) -> Iterator[Accusation]:
    bounds: Bounds = {}
    first: dict[int, list[tuple[int, int]]] = {}
    for node in nodes:
        told = notes.get(node.process, {}).get(NOTE, {})
        for row in node.inputs:
            _learn(bounds, row, _how_many(_counted(told, row)))
        for row in node.outputs:
            rows = _counted(told, row)
            if rows:
                first.setdefault(node.process, rows)
            allowed, least = _allowed(node, row, bounds), _least(row)
            if 0 < (allowed or 0) < least and _accuses(node, row):
                yield _accusation(node, row, allowed or 0, first.get(node.process, []))
                allowed = None  # what it mixed is its own
            _learn(bounds, row, _how_many(rows) or allowed)


def _counted(told: Mapping[str, Any], row: Row) -> list[tuple[int, int]] | None:
    """The rows of a tensor with these elements that are not finite; None where nobody looked."""
    places = told.get(f"{row.digest} {row.dtype}") if row.digest is not None else None
    return rows_at(places, row) if isinstance(places, str) else None


def _how_many(rows: list[tuple[int, int]] | None) -> int | None:
    return None if rows is None else sum(last - first + 1 for first, last in rows)


def _learn(bounds: Bounds, row: Row, known: int | None) -> None:
    identity = _place(row)
    if identity is not None and known is not None:
        bounds[identity] = known


def _place(row: Row) -> Place | None:
    identity = identity_of(row)
    if identity is None or not row.shape or row.stride is None:
        return None
    return identity, tuple(row.shape), tuple(row.stride), row.offset


def _unsound(row: Row) -> int:
    """How many elements are not finite."""
    return (row.nan or 0) + _infinite(row)


def _infinite(row: Row) -> int:
    return (row.pos_inf or 0) + (row.neg_inf or 0)


def _most(row: Row, bounds: Bounds) -> int | None:
    """The most rows of a tensor that can hold what is not finite; None where nothing is known."""
    if row.nan is None or not row.shape or not _length(row):
        return None
    identity = _place(row)
    known = bounds.get(identity, row.shape[0]) if identity is not None else row.shape[0]
    return min(known, row.shape[0], _unsound(row))


def _least(row: Row) -> int:
    """The fewest rows that so many NaN fill."""
    length = _length(row)
    return math.ceil(row.nan / length) if row.nan and length else 0


def _length(row: Row) -> int:
    """Elements of one row; 0 where not every place of the shape holds one (sparse tensors)."""
    if not row.shape or not row.size or math.prod(row.shape) != row.size:
        return 0
    return row.size // row.shape[0]


def _allowed(node: Node, out: Row, bounds: Bounds) -> int | None:
    """The most rows of an output that can hold what is not finite; None where that is not known."""
    if not out.shape or not node.inputs or _overflows(node, out):
        return None
    traits, first = traits_of(node.op), node.inputs[0]
    if traits.in_order and (traits.view or first.shape == out.shape):
        return _reshaped(first, out, bounds)
    carrying = _carrying(node, out)
    if carrying is None:
        return None
    each = [_most(row, bounds) for row in carrying]
    return None if None in each else sum(one for one in each if one is not None)


def _overflows(node: Node, out: Row) -> bool:
    """Whether infinities are new, of which nobody knows the rows, or a number that the call was
    given is not finite.
    """
    return _infinite(out) > sum(map(_infinite, node.inputs)) or not all(
        math.isfinite(value) for _, value in parse_arguments(node.args).scalars
    )


def _reshaped(row: Row, out: Row, bounds: Bounds) -> int | None:
    """Rows that are split or merged by a view: an index of the one covers whole indices of the
    other.
    """
    known = _most(row, bounds)
    before, after = (row.shape or [0])[0], (out.shape or [0])[0]
    if known is None or not before or not after:
        return None
    if before % after == 0:
        return min(known, after)
    return min(after, known * (after // before)) if after % before == 0 else None


def _carrying(node: Node, out: Row) -> list[Row] | None:
    """The inputs whose rows become rows of the output; None where the operator may mix rows, or
    another input is not finite, which reaches every row.
    """
    told = traits_of(node.op).rows
    if not told or out.slot != "0" or not out.shape or _along_rows(node, out):
        return None
    slots = {row.slot for row in node.inputs} if told == "all" else set(told.split(","))
    carrying = [
        row
        for row in node.inputs
        if row.slot in slots
        and row.shape
        and len(row.shape) == len(out.shape)
        and row.shape[0] == out.shape[0]
    ]
    others = [row for row in node.inputs if all(row is not each for each in carrying)]
    if any(row.nan is None or _unsound(row) for row in others):
        return None
    return carrying or None


def _along_rows(node: Node, out: Row) -> bool:
    """Whether what is first is no row: a normalisation goes along it, or a sum."""
    word, size = family(node.op), len(out.shape or ())
    if size < (3 if "attention" in word else 2 if traits_of(node.op).contraction else 1):
        return True  # one sample alone: what is first are its own tokens, or features
    if "softmax" in word:
        dim = parse_arguments(node.args).number("1")
        return dim is None or int(dim) % size == 0
    if "layer_norm" in word:
        given = parse_arguments(node.args).scalars
        return sum(slot.startswith("1.") for slot, _ in given) >= size
    return False


def _accuses(node: Node, out: Row) -> bool:
    """Whether a NaN in a sound row would be the operator's own: what it reads is far from the
    type's end, and it works row by row.
    """
    if _carrying(node, out) is None:
        return False
    limit = TAME.get(out.dtype, 0.0)
    return all(
        row.min is None or row.max is None or max(abs(row.min), abs(row.max)) < limit
        for row in node.inputs
    )


def _accusation(node: Node, out: Row, allowed: int, first: list[tuple[int, int]]) -> Accusation:
    rows, least = (out.shape or [0])[0], _least(out)
    told = ", ".join(str(one) if one == last else f"{one} to {last}" for one, last in first[:8])
    return Accusation(
        process=node.process,
        index=node.index,
        kind="row-crossing",
        reasons=(
            f"at most {allowed} of {rows} rows that it reads are not finite",
            f"at least {least} that it gives hold NaN, though it works row by row",
            *((f"the first rows that were not finite: {told}",) if told else ()),
        ),
        confidence="likely",
        evidence={
            "rows": rows,
            "unsound_before": allowed,
            "unsound_after": least,
            **({"first_rows": told} if told else {}),
        },
        judged=False,
    )
