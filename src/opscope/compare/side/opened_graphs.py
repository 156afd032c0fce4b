# SPDX-License-Identifier: Apache-2.0
"""Graphs of compiled code that were executed again, operator by operator (record/torch/again.py):
where that gave what the graph gave, its operators stand in the graph, as if its back end had run
them.

What generated code called is left aside. What follows the graph reads what it made: its operators'
results bear the versions of the graph's, and where what a graph is given was copied, the copies
those of what was given, and its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.side.columns import MODULE, OPERATOR
from opscope.judge.tolerance import PRECISIONS
from opscope.run.hashes import hash_of
from opscope.run.keys import NONE, keys_of, place_of
from opscope.run.query import rows_where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opscope.arrays import Bools, Ints
    from opscope.compare.side.columns import Side, Tensors

Rows = tuple[int, int]
SAME = 256.0  # roundings of a graph's results that those of its operators may be off
_CAPTURED = "torch.fx.GraphModule"  # what a graph is before it is compiled
_BITS = 44  # of a version, below its process
_VERSION = (1 << _BITS) - 1


class Second(msgspec.Struct, frozen=True):
    """A second execution, by rows of Calls: its own call, and the graph's that it repeats; and
    rows of what it was given, and what it made, each with the graph's.
    """

    call: int
    graph: int
    given: list[Rows]
    made: list[Rows]


def opened(sides: Sequence[Side]) -> list[Side]:
    """Both sides with the operators of second executions in the place of their graphs; not of a
    graph of which the other side has one that was not executed again, as in an older recording.
    """
    known = [_seconds(side) if side.graphs().any() else [] for side in sides]
    if not any(known):
        return list(sides)
    same = [
        [each for each in some if _agrees(side, each)]
        for side, some in zip(sides, known, strict=True)
    ]
    places = [
        {_place(side, each.graph) for each in some} for side, some in zip(sides, same, strict=True)
    ]
    whole = [_whole(side) for side in sides]
    return [
        _opened(
            side,
            some,
            [
                each
                for each in agreeing
                if _place(side, each.graph) not in whole[1 - number] - places[1 - number]
            ],
        )
        for number, (side, some, agreeing) in enumerate(zip(sides, known, same, strict=True))
    ]


def _whole(side: Side) -> set[tuple[int, ...]]:
    """The graphs of a side of which operators inside did not make every result."""
    tensors, graphs = side.tensors, side.graphs()
    if not graphs.any():
        return set()
    own = graphs[tensors.call]
    operators = (side.calls.level == OPERATOR)[tensors.call] & ~own
    made = tensors.version[tensors.output & operators & (tensors.nan >= 0)]
    untold = tensors.output & own & ~np.isin(tensors.version, made)
    return {_place(side, graph) for graph in np.unique(tensors.call[untold]).tolist()}


def _place(side: Side, graph: int) -> tuple[int, ...]:
    """By what executions of one graph are known on both sides."""
    calls = side.calls
    return tuple(int(column[graph]) for column in (calls.rank, calls.step, calls.phase, calls.op))


def _opened(side: Side, known: list[Second], same: list[Second]) -> Side:
    if not known:
        return side
    others = [each.call for each in known if each not in same]
    calls = side.calls
    graphs, places = (
        np.array([getattr(each, name) for each in same], dtype=np.int64)
        for name in ("graph", "call")
    )
    parent, level, op, leaf = (
        getattr(calls, name).copy() for name in ("parent", "level", "op", "leaf")
    )
    leaf[graphs] = False
    # what generated code called, and operators that do not make what it made
    around = np.zeros(len(calls), dtype=np.bool_)
    around[[*graphs, *others]] = True
    leaf[side.enclosing(around) >= 0] = False
    parent[places], level[places], op[places] = calls.index[graphs], MODULE, hash_of(_CAPTURED)
    return msgspec.structs.replace(
        side,
        calls=msgspec.structs.replace(calls, leaf=leaf, parent=parent, level=level, op=op),
        tensors=_joined(side, same),
        words={**side.words, hash_of(_CAPTURED): _CAPTURED},
    )


def _seconds(side: Side) -> list[Second]:
    """The second executions that did not fail, and can be held against their graphs."""
    keys = side.calls.key
    names = ("process", "index", "again", "level", "error")
    rows = [
        (process, index, again)
        for process, index, again, level, error in rows_where(
            side.run, "calls", names, lambda batch: ~np.ma.getmaskarray(batch["again"])
        )
        if level == "graph" and error is None
    ]
    if not rows:
        return []
    process, index, again = np.array(rows, dtype=np.int64).T
    places = (place_of(keys_of(process, each), keys).tolist() for each in (index, again))
    found = [
        Second(call, graph, _given(side, call, graph), _made(side, call, graph))
        for call, graph in zip(*places, strict=True)
        if min(call, graph) >= 0
    ]
    return [each for each in found if each.given and each.made]


def _slots(side: Side, call: int, *, output: bool) -> dict[int, int]:
    """Rows of the inputs or outputs of a call by slot."""
    tensors = side.tensors
    rows = np.arange(tensors.begins[call], tensors.begins[call + 1])
    rows = rows[tensors.output[rows] == output]
    return dict(zip(tensors.slot[rows].tolist(), rows.tolist(), strict=True))


def _given(side: Side, call: int, graph: int) -> list[Rows]:
    """Rows that a second execution was given with those of its graph; none where some have none."""
    mine, theirs = (_slots(side, each, output=False) for each in (call, graph))
    if not mine.keys() <= theirs.keys():
        return []
    return [(row, theirs[slot]) for slot, row in mine.items()]


def _made(side: Side, call: int, graph: int) -> list[Rows]:
    """Rows that a second execution made with those of its graph, which may have written to less
    than was copied for it; none where some of the graph's have none.
    """
    mine, theirs = (_slots(side, each, output=True) for each in (call, graph))
    if not theirs.keys() <= mine.keys():
        return []
    return [(mine[slot], row) for slot, row in theirs.items()]


def _agrees(side: Side, second: Second) -> bool:
    """Whether a second execution gave what its graph gave."""
    rows = np.array(second.made, dtype=np.int64)
    return _same(side, rows[:, 0], rows[:, 1])


def _same(side: Side, mine: Ints, theirs: Ints) -> bool:
    """Whether statistics of rows are the same but for roundings."""
    tensors = side.tensors
    epsilon = side.told(tensors.dtype[mine], _epsilon, np.float64)
    same: Bools = (tensors.shape[mine] == tensors.shape[theirs]) & (tensors.nan[mine] >= 0)
    for name in ("dtype", "nan", "pos_inf", "neg_inf"):
        same &= getattr(tensors, name)[mine] == getattr(tensors, name)[theirs]
    spread = np.maximum(np.abs(tensors.min[theirs]), np.abs(tensors.max[theirs]))
    for name, size in (
        ("l2norm", tensors.l2norm[theirs]),
        *((name, spread) for name in ("min", "max", "mean")),
    ):
        one, other = getattr(tensors, name)[mine], getattr(tensors, name)[theirs]
        off = np.abs(one - other) > SAME * epsilon * size
        same &= ~off & (np.isnan(one) == np.isnan(other))
    return bool(same.all())


def _epsilon(name: str) -> float:
    known = PRECISIONS.get(name)
    return 0.0 if known is None else known.unit


def _joined(side: Side, same: list[Second]) -> Tensors:
    """The tensors, one version for what a graph was given and its copy, one for what it made and
    what its operators made.
    """
    tensors = side.tensors
    process = side.calls.process[tensors.call]
    identity = np.where(tensors.version >= 0, (process << _BITS) | tensors.version, NONE)
    became = _replaced(side, same, identity)
    known = np.array(sorted(became), dtype=np.int64)
    at = place_of(identity, known)
    rows = np.flatnonzero(at >= 0)
    if not len(rows):
        return tensors
    version, source = np.array([became[each] for each in known.tolist()], dtype=np.int64).T[
        :, at[rows]
    ]
    columns = {name: getattr(tensors, name).copy() for name in ("version", "named", "parameter")}
    columns["version"][rows] = version & _VERSION
    copied, source = rows[source >= 0], source[source >= 0]
    for name in ("named", "parameter"):
        columns[name][copied] = getattr(tensors, name)[source]
    return msgspec.structs.replace(tensors, **columns)


def _replaced(side: Side, same: list[Second], identity: Ints) -> dict[int, tuple[int, int]]:
    """For versions what they become, and the row that they have their name of, NONE for their
    own.
    """
    became: dict[int, tuple[int, int]] = {}
    for second in same:
        held = {int(identity[row]) for pair in second.given for row in pair}
        for mine, theirs in second.given:
            if identity[mine] != identity[theirs]:
                became[int(identity[mine])] = int(identity[theirs]), theirs
        for mine, theirs in second.made:
            own, whole = int(identity[mine]), int(identity[theirs])
            if own in held or whole in held:
                continue  # what a graph hands on as it was given it
            became[whole] = own, NONE
            if side.tensors.named[theirs]:
                became[own] = own, theirs
    return became
