# SPDX-License-Identifier: Apache-2.0
"""Backward passes that are recorded in part: MindSpore's PyNative mode shows no call of the
gradients that its engine works out by itself.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.side.call_rows import inputs_of, outputs_of
from opscope.compare.side.lowering import GRAPH, spelling

if TYPE_CHECKING:
    from opscope.arrays import Ints
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow


def bridged(side: Side, flow: Flow) -> Flow:
    """The flow of a run of MindSpore with edges across calls that it does not show: a gradient that
    nobody made, nor is read before, comes of the last one of its size before it that nobody reads,
    else of the last.
    """
    if spelling(side) != GRAPH:
        return flow
    producer, source = flow.producer.copy(), flow.source_row.copy()
    tensors, calls = side.tensors, side.calls
    read = set(source[~tensors.output].tolist())
    backward = calls.leaf & side.which(calls.phase, lambda phase: phase == "backward")
    known = set(flow.state[~backward[tensors.call]].tolist())
    loose: dict[tuple[int, int], list[int]] = defaultdict(list)
    for call in np.flatnonzero(backward).tolist():
        waiting = loose[int(calls.rank[call]), int(calls.step[call])]
        for row in inputs_of(side, call):
            outside = source[row] < 0 and int(flow.state[row]) not in known
            if outside and waiting and tensors.size[row] > 1 and not tensors.constant[row]:
                source[row] = _taken(waiting, tensors.size, int(tensors.size[row]))
                producer[row] = tensors.call[source[row]]
        waiting += [
            row for row in outputs_of(side, call) if row not in read and tensors.size[row] > 1
        ]
    return msgspec.structs.replace(flow, producer=producer, source_row=source)


def _taken(waiting: list[int], sizes: Ints, size: int) -> int:
    """Take the last of some rows that is so large, else the last."""
    alike = [row for row in waiting if sizes[row] == size]
    row = (alike or waiting)[-1]
    waiting.remove(row)
    return row
