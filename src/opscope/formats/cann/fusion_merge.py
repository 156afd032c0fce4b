# SPDX-License-Identifier: Apache-2.0
"""Two graphs of one model as one: what an operator of the first stands for, in the words of the
model behind the second.

with_quantised: the originals of the offline model are operators of the quantised model; its graph
says what those stand for.
with_unfused: both were built of one model, one with fusion and one without; the ground truth is a
dump of the second.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from opscope.formats.cann.fusion import FusedOp, Graph, Output
from opscope.formats.cann.names import sanitised


def with_quantised(offline: Graph, quantised: Graph) -> Graph:
    """The offline graph with originals and outputs of the quantised graph's own originals, where it
    knows them.
    """
    groups = _groups(quantised)

    def behind(name: str) -> list[FusedOp]:
        known_op = quantised.ops.get(sanitised(name))
        return [] if known_op is None else groups[known_op.group]

    def renamed(op: FusedOp) -> FusedOp:
        originals = tuple(
            dict.fromkeys(
                word
                for name in op.originals or ()
                for one in behind(name)
                for word in one.originals or ()
            )
        )
        outputs = []
        for output in op.outputs:
            known = next(
                (one for one in behind(output.name or "") if one.name == output.name), None
            )
            if known is not None:
                outputs.append(
                    known.outputs[output.index]
                    if output.index < len(known.outputs)
                    else Output(None, output.index)
                )
        return msgspec.structs.replace(
            op, originals=originals or op.originals, outputs=tuple(outputs) or op.outputs
        )

    return Graph({key: renamed(op) for key, op in offline.ops.items()})


def with_unfused(fused: Graph, unfused: Graph) -> Graph:
    """The graph built with fusion, its originals replaced by the operators that stand for them in
    the one built without.
    """
    groups = _groups(unfused)
    standing = {name: op for op in unfused.ops.values() for name in op.originals or ()}

    def placed(output: Output) -> Output:
        op = standing.get(output.name or "")
        if op is None:
            return output
        numbers = (
            number
            for one in groups[op.group]
            for number, other in enumerate(one.outputs)
            if other == output
        )
        return Output(op.name, next(numbers, output.index))

    def renamed(op: FusedOp) -> FusedOp:
        originals = (
            None
            if op.originals is None
            else tuple(
                dict.fromkeys(standing[name].name for name in op.originals if name in standing)
            )
        )
        return msgspec.structs.replace(
            op, originals=originals, outputs=tuple(map(placed, op.outputs))
        )

    return Graph({key: renamed(op) for key, op in fused.ops.items()})


def _groups(graph: Graph) -> dict[str, list[FusedOp]]:
    groups: dict[str, list[FusedOp]] = defaultdict(list)
    for op in graph.ops.values():
        groups[op.group].append(op)
    return groups
