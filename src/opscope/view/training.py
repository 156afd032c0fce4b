# SPDX-License-Identifier: Apache-2.0
"""Training over its steps: the loss, the norms of gradients and parameters, units that are dead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.operators.catalogue import traits_of
from opscope.run.keys import keys_of
from opscope.run.query import filled
from opscope.run.vectors import Vectors, codes_of
from opscope.view.all_calls import lost_elements
from opscope.view.columns import Groups, TextColumn, read

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Ints
    from opscope.view.all_calls import AllCalls

MOST_LINES, MOST_STEPS = 200, 2000
MOST_POINTS = MOST_LINES * MOST_STEPS
ROLES = ("gradient", "parameter")
_LOST = ("nan", "pos_inf", "neg_inf")
Lines = dict[str, list[list[Any]]]  # points by label: step, value, count of what is not finite


def training_document(calls: AllCalls) -> dict[str, Any] | None:
    """Lines over the steps, each a list of [step, value, count of what is not finite]; None for a
    run of a single step.
    """
    steps = calls.numbers("step")
    if not len(steps) or steps.min() == steps.max():
        return None
    rank = int(calls.numbers("rank").min())
    curves = {"losses": _losses(calls), **_norms(calls, rank), "zeros": _zeros(calls, rank)}
    return {
        "rank": rank,
        **{
            kind: [
                {"label": label, "points": points[-MOST_STEPS:]}
                for label, points in list(lines.items())[:MOST_LINES]
            ]
            for kind, lines in curves.items()
        },
    }


def _losses(calls: AllCalls) -> Lines:
    """Single numbers that operators of losses gave, by rank and name."""
    chosen = calls.texts("op").which(lambda op: traits_of(op).loss) & _forward(calls)
    found = read(
        calls.run,
        "tensors",
        ("process", "index", "io", "slot", "size", "max", *_LOST),
        lambda batch: _sized(batch, 1, 1) & batch.are("io", "output") & batch.are("slot", "0"),
        np.sort(calls.keys[chosen]),
    ).numbers
    rows = calls.rows(keys_of(found["process"], found["index"]))
    names, steps, ranks = calls.texts("name"), calls.numbers("step"), calls.numbers("rank")
    groups = Groups(ranks[rows], names.numbers[rows], steps[rows])
    first = rows[groups.first]
    return _lines(
        [f"r{rank} {name}" for rank, name in zip(ranks[first], names.at(first), strict=True)],
        steps[first],
        groups.known(np.maximum, found["max"], -np.inf),
        groups.merged(np.add, lost_elements(found)).tolist(),
    )


def _norms(calls: AllCalls, rank: int) -> dict[str, Lines]:
    """The norm of each gradient and parameter as the last call of a step met it, by role."""
    found = read(
        calls.run,
        "tensors",
        ("process", "index", "role", "tensor_name", "size", "l2norm", *_LOST),
        lambda batch: np.isin(batch.hashes("role"), codes_of(ROLES)) & batch.known("size"),
    )
    roles, names = found.texts["role"], found.texts["tensor_name"]
    rows = calls.rows(keys_of(found.numbers["process"], found.numbers["index"]))
    kept = np.flatnonzero((rows >= 0) & names.which(lambda name: name is not None))
    kept = kept[calls.numbers("rank")[rows[kept]] == rank]
    steps, index = calls.numbers("step")[rows[kept]], found.numbers["index"][kept]
    groups = Groups(roles.numbers[kept], names.numbers[kept], steps)
    first = groups.first
    norms = found.numbers["l2norm"][kept]
    lost = np.add.reduce([filled(found.numbers[name])[kept] for name in _LOST])
    points = _lines(
        list(zip(roles.at(kept[first]), names.at(kept[first]), strict=True)),
        steps[first],
        _last(groups, index, norms),
        _last(groups, index, lost),
    )
    return {
        kind: {name: line for (role, name), line in points.items() if role == kind}
        for kind in ROLES
    }


def _last(groups: Groups, index: Ints, column: Array) -> list[Any]:
    """What the last call of each group tells of those that tell something, None where none does."""
    known = ~np.ma.getmaskarray(column)
    last = groups.merged(np.maximum, np.where(known, index, -1))[groups.numbers]
    rows = np.where(known & (index == last), np.arange(len(index)), len(index))
    told: list[Any] = [*column.tolist(), None]
    return [told[row] for row in groups.merged(np.minimum, rows).tolist()]


def _zeros(calls: AllCalls, rank: int) -> Lines:
    """The share of zeros in what activations give that give 0 for what they do not let through, by
    module.
    """
    chosen = calls.texts("op").which(lambda op: traits_of(op).stops) & _forward(calls)
    chosen &= calls.numbers("rank") == rank
    found = read(
        calls.run,
        "tensors",
        ("process", "index", "io", "size", "zero"),
        lambda batch: _sized(batch, 2) & batch.are("io", "output"),
        np.sort(calls.keys[chosen]),
    ).numbers
    rows = calls.rows(keys_of(found["process"], found["index"]))
    labels, steps = _labels(calls, rows), calls.numbers("step")[rows]
    groups = Groups(labels.numbers, steps)
    zeros = groups.known(np.add, found["zero"], 0)
    sizes = groups.merged(np.add, np.ma.getdata(found["size"])).tolist()
    shares = [None if n is None else n / size for n, size in zip(zeros, sizes, strict=True)]
    return _lines(labels.at(groups.first), steps[groups.first], shares, [0] * len(groups))


def _labels(calls: AllCalls, rows: Ints) -> TextColumn:
    """Module and operator of these calls."""
    modules, ops = calls.texts("module").filled(), calls.texts("op")
    pairs = Groups(modules.numbers[rows], ops.numbers[rows])
    first = rows[pairs.first]
    labels = [f"{module} {op}" for module, op in zip(modules.at(first), ops.at(first), strict=True)]
    words = sorted(set(labels))
    places = {word: place for place, word in enumerate(words)}
    numbers = np.array([places[label] for label in labels], np.int32)
    return TextColumn(numbers[pairs.numbers], tuple(words))


def _lines(
    labels: Sequence[Any], steps: Ints, values: Sequence[Any], lost: Sequence[int]
) -> dict[Any, list[list[Any]]]:
    lines: dict[Any, list[list[Any]]] = defaultdict(list)
    points = zip(labels, steps.tolist(), values, lost, strict=True)
    for label, *point in islice(points, MOST_POINTS):
        lines[label].append(point)
    return dict(lines)


def _sized(batch: Vectors, least: int, most: float = np.inf) -> Bools:
    """Which tensors have so many elements."""
    sizes = batch.numbers("size")
    return batch.known("size") & (sizes >= least) & (sizes <= most)


def _forward(calls: AllCalls) -> Bools:
    return calls.texts("phase").which(lambda phase: phase == "forward")
