# SPDX-License-Identifier: Apache-2.0
"""Which calls are judged: the finest recorded; and which tensors backward starts from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from opscope.judge.limits import is_float
from opscope.questions.rows import MAX_CALLS, MAX_UNREAD_CALLS, Node, Screen, load
from opscope.run.keys import key, keys_of, merged, processes_of
from opscope.run.query import columns, rows_of
from opscope.run.schema import LEVELS, PHASES
from opscope.run.vectors import vectors
from opscope.scan.dataflow import Identity, identity_of
from opscope.scan.graphs import Judged, resolve

if TYPE_CHECKING:
    from opscope.arrays import Array, Ints
    from opscope.run.protocol import Run
    from opscope.run.vectors import Vectors

_NEAR = 8  # calls between the gradient of ones and the first node


def suspicious_calls(run: Run, screened: Screen) -> tuple[Judged, int]:
    """The calls to judge, in order within each process, and how many were left out because they are
    too many.

    Calls whose tensors were not read are among them, so that damage is followed through what nobody
    looked at.
    """
    wanted = np.union1d(screened.bad, screened.odd)
    if screened.bad.size and screened.unread.size <= MAX_UNREAD_CALLS:
        wanted = np.union1d(wanted, screened.unread)
    left_out = max(0, len(wanted) - MAX_CALLS)
    nodes = load(run, _earliest(wanted, MAX_CALLS))
    ordered = sorted(_finest(run, nodes), key=lambda node: (node.process, node.index))
    return resolve(run, ordered), left_out


def _earliest(wanted: Ints, limit: int) -> Ints:
    """The first calls of every process, so that no process is left out for another."""
    if len(wanted) <= limit:
        return wanted
    processes, counts = np.unique(processes_of(wanted), return_counts=True)
    share = limit // len(processes)
    starts = np.cumsum(counts) - counts
    return np.concatenate(
        [
            wanted[start : start + min(int(count), share)]
            for start, count in zip(starts, counts, strict=True)
        ]
    )


def _finest(run: Run, nodes: dict[int, Node]) -> list[Node]:
    """Operators where there are any; of the coarser levels only calls inside which nothing was
    recorded.
    """
    if all(node.level == "operator" for node in nodes.values()):
        return list(nodes.values())
    parents = _parents(run, np.array(sorted(nodes), dtype=np.int64))
    return [
        node
        for number, node in nodes.items()
        if node.level in {"operator", "graph"} or number not in parents
    ]


def _parents(run: Run, calls: Ints) -> frozenset[int]:
    """Those of these calls inside of which something was recorded."""
    parents: set[int] = set()
    for batch in columns(run, "calls", ("process", "parent")):
        inside = ~np.ma.getmaskarray(batch["parent"])
        around = keys_of(batch["process"][inside], batch["parent"][inside])
        parents.update(calls[np.isin(calls, around)].tolist())
    return frozenset(parents)


def losses(run: Run, nodes: list[Node]) -> frozenset[Identity]:
    """Tensors that backward starts from, of those in these nodes.

    PyTorch makes a gradient of ones like the loss just before it runs the first node, so the root
    is what that call reads; where there is no such call, it is the single-element output of the
    last forward call before backward.
    """
    known = {key(node.process, node.index): node for node in nodes}
    turns = _turns(run)
    ones = _ones(run, merged([_around(first) for _, first, _ in turns]))
    identities: set[Identity] = set()
    for before, first, forward in turns:
        near = [number for number in _around(first).tolist() if number in ones]
        if near:
            rows = [row for number in near if number in known for row in known[number].inputs]
        elif forward:
            last = known.get(before)
            rows = (
                [row for row in last.outputs if row.size == 1 and is_float(row.dtype)]
                if last is not None
                else []
            )
        else:
            rows = []
        identities.update(identity for row in rows if (identity := identity_of(row)) is not None)
    return frozenset(identities)


def _turns(run: Run) -> list[tuple[int, int, bool]]:
    """Of each backward pass the last call before it, its first, and whether the former is a forward
    call, else it is one of an optimizer; at the finest level recorded.
    """
    parts = [
        (
            batch.keys,
            _numbered(batch, "level", LEVELS),
            _numbered(batch, "phase", PHASES),
            ~batch.known("again"),
        )
        for batch in vectors(run, "calls")
    ]
    if not sum(len(calls) for calls, *_ in parts):
        return []
    calls, levels, phases, once = map(np.concatenate, zip(*parts, strict=True))
    # where there are neither operators nor APIs, the level that stands first
    finest = levels[np.argmin(np.minimum(levels, LEVELS.index("module")))]
    chosen = np.flatnonzero(once & ((levels == finest) | (levels == LEVELS.index("graph"))))
    ordered = chosen[np.argsort(calls[chosen], kind="stable")]
    calls, phases = calls[ordered], phases[ordered]
    forward, backward, optimizer = map(PHASES.index, ("forward", "backward", "optimizer"))
    turns = np.flatnonzero(
        np.isin(phases[:-1], (forward, optimizer))
        & (phases[1:] == backward)
        & (processes_of(calls[:-1]) == processes_of(calls[1:]))
    )
    before, first = calls[turns].tolist(), calls[turns + 1].tolist()
    return list(zip(before, first, (phases[turns] == forward).tolist(), strict=True))


def _numbered(batch: Vectors, name: str, known: Sequence[str]) -> Array:
    """The place of each text of a column among those known, behind all of them where it is none."""
    places = np.full(len(batch), len(known), dtype=np.int8)
    for place, text in enumerate(known):
        places[batch.are(name, text)] = place
    return places


def _around(first: int) -> Ints:
    """Calls around the first of a backward pass."""
    around = np.arange(first - _NEAR, first + 3)
    own: Ints = around[processes_of(around) == processes_of(np.array(first))]
    return own


def _ones(run: Run, calls: Ints) -> frozenset[int]:
    """Those of these calls that make a gradient of ones."""
    rows = rows_of(run, "calls", ("process", "index", "op"), calls)
    return frozenset(
        key(process, index) for process, index, op in rows if op == "aten::ones_like.default"
    )
