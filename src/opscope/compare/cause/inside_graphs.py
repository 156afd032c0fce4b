# SPDX-License-Identifier: Apache-2.0
"""What is known of the inside of a compiled graph at which two runs part: nodes that `--check` saw
deviate when they alone are compiled, operators that a second execution recorded; else the recording
that would tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.compare.cause.causes import OTHERWISE, Cause
from opscope.compare.cause.parted_calls import first_parted
from opscope.operators.spelling import COMPILED
from opscope.questions.compiled_nodes import DEVIATES, MISMATCH, node_words, nodes_of
from opscope.run.keys import NONE, keys_of, place_of
from opscope.run.query import keys_where, records

if TYPE_CHECKING:
    from opscope.arrays import Bools
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

CHECK = "opscope run --check"
UNCHECKED = f"{CHECK} holds what is compiled against the operators it is made of"
CAPTURED = f"{CHECK} found no other results than those of its own operators, where it looked"
PACKED = "what was compiled into a package cannot be executed operator by operator"
PARTS = "what it reads agrees with golden's, and what it makes with nothing there"


def inside(pairing: Pairing, graph: int) -> Cause:
    """The cause that a graph of the target is where it parts from golden, as far inside as the
    target's run knows: its place is that of the graph, or of an operator of its second execution.
    """
    side = pairing.target
    plain = Cause(OTHERWISE, graph, NONE, sure=False)
    nodes = _deviating(side, graph)
    if nodes is not None:
        more = {"nodes": nodes} if nodes else {}
        return msgspec.structs.replace(plain, more=more, words=(DEVIATES, *node_words(nodes)))
    repeated = _repeated(side, graph)
    first = first_parted(pairing, repeated & side.calls.leaf)
    if first is not None:
        partner = int(pairing.match.target[first])
        return msgspec.structs.replace(plain, target=first, golden=partner, words=(PARTS,))
    return _unknown(side, plain)


def accused_graphs(side: Side) -> list[tuple[int, tuple[dict[str, Any], ...]]]:
    """The calls of graphs that a check accuses, each with the nodes that deviate when they alone
    are compiled, none where the whole graph does.
    """
    judged = [row for row in records(side.run, "judgements") if row.kind == MISMATCH]
    processes, indices = (
        np.array([getattr(row, name) for row in judged], dtype=np.int64)
        for name in ("process", "index")
    )
    graphs = place_of(keys_of(processes, indices), side.calls.key).tolist()
    return [
        (graph, tuple(nodes_of(row.sample)))
        for row, graph in zip(judged, graphs, strict=True)
        if graph >= 0
    ]


def _deviating(side: Side, graph: int) -> tuple[dict[str, Any], ...] | None:
    """The nodes that a check of this graph, in whichever execution, accuses; None where none
    does.
    """
    alike = (side.calls.rank, side.calls.op, side.calls.phase)
    return next(
        (
            nodes
            for accused, nodes in accused_graphs(side)
            if all(column[accused] == column[graph] for column in alike)
        ),
        None,
    )


def _repeated(side: Side, graph: int) -> Bools:
    """The calls of the second execution of a graph."""
    calls = side.calls
    process, index = calls.process[graph], calls.index[graph]
    again = keys_where(
        side.run,
        "calls",
        ("again",),
        lambda batch: (batch["process"] == process) & (batch["again"] == index),
    )
    repeated: Bools = np.isin(calls.key, again)
    return repeated


def _unknown(side: Side, plain: Cause) -> Cause:
    """The graph, with the recording of its program that would tell more."""
    name = side.operator(plain.target)
    if name.startswith(f"{COMPILED}package_"):
        return msgspec.structs.replace(plain, words=(PACKED,))
    checked = _checked(side, plain.target)
    if not checked:
        return msgspec.structs.replace(
            plain, words=(UNCHECKED,), more={"command": f"{CHECK} -- CMD"}
        )
    missed = checked.get("unjudged", {}).get(name)
    words = CAPTURED if missed is None else f"{CHECK} could not judge it: {missed.get('reason')}"
    command = f"opscope run --backend {name.removeprefix(COMPILED)}=eager -- CMD"
    return msgspec.structs.replace(plain, words=(words,), more={"command": command})


def _checked(side: Side, graph: int) -> dict[str, Any]:
    """What checks of the process of this graph came to, nothing where there were none."""
    process = int(side.calls.process[graph])
    facts = (each.checked for each in side.run.processes if each.process == process)
    return next(facts, None) or {}
