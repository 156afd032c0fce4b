# SPDX-License-Identifier: Apache-2.0
"""Backward passes that are recorded in part: MindSpore's PyNative mode shows no call of the
gradients that its engine works out by itself, and msprobe of each operator only the last of what
makes its gradients.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.side.call_rows import inputs_of, outputs_of
from opscope.compare.side.contents import bears_identities, begins_backward, forward_of
from opscope.compare.side.lowering import GRAPH, spelling
from opscope.compare.side.producers import makers_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow


def bridged(side: Side, flow: Flow) -> Flow:
    """The flow of a run of MindSpore with edges across calls that it does not show: a gradient that
    nobody made, nor is read before, comes of the last one of its size before it that nobody reads,
    else of the last; and of a dump, which says what the forward call of a backward one is.
    """
    if not bears_identities(side):
        return _by_forward_calls(side, flow)
    if spelling(side) != GRAPH:
        return flow
    producer, source = flow.producer.copy(), flow.source_row.copy()
    tensors, calls = side.tensors, side.calls
    read = set(source[~tensors.output].tolist())
    backward = calls.leaf & side.in_phase("backward")
    known = set(flow.state[~backward[tensors.call]].tolist())
    loose: dict[tuple[int, int], list[int]] = defaultdict(list)
    for call in np.flatnonzero(backward).tolist():
        waiting = loose[int(calls.rank[call]), int(calls.step[call])]
        for row in inputs_of(side, call):
            outside = source[row] < 0 and int(flow.state[row]) not in known
            if outside and waiting and tensors.size[row] > 1 and not tensors.constant[row]:
                source[row] = _take_last(waiting, tensors.size, int(tensors.size[row]))
                producer[row] = tensors.call[source[row]]
        waiting += [
            row for row in outputs_of(side, call) if row not in read and tensors.size[row] > 1
        ]
    return msgspec.structs.replace(flow, producer=producer, source_row=source)


def _by_forward_calls(side: Side, flow: Flow) -> Flow:
    """The flow in which a gradient that nobody made comes of the backward call of what reads the
    forward call's results, or the parameter that it is of, the last of them; else of the last
    backward call.
    """
    calls, tensors, source = side.calls, side.tensors, flow.source_row.copy()
    backward = side.in_phase("backward") & calls.leaf
    forward = forward_of(side)
    makers = _Makers(side, flow, backward, forward)
    begins = begins_backward(side, flow.source_row)
    last = NONE
    for call in range(len(calls)):
        for row in inputs_of(side, call):
            if source[row] >= 0 or begins[call]:
                continue
            if backward[call]:
                maker = makers.of_results(int(forward[call]), call)
                source[row] = makers.made(maker if maker >= 0 else last, int(tensors.size[row]))
            elif tensors.named[row] and not tensors.parameter[row]:
                maker = makers.of_parameter(int(tensors.named[row]), call)
                source[row] = makers.made(maker, int(tensors.size[row]))
        last = call if backward[call] else last
    producer = makers_of(tensors, source)
    return msgspec.structs.replace(flow, producer=producer, source_row=source)


class _Makers:
    """Backward calls by what their forward calls read."""

    def __init__(self, side: Side, flow: Flow, backward: Bools, forward: Ints) -> None:
        self._side, tensors = side, side.tensors
        gradients = np.flatnonzero(backward & (forward >= 0))
        self._gradient_of = dict(zip(forward[gradients].tolist(), gradients.tolist(), strict=True))
        self._readers: dict[int, list[int]] = defaultdict(list)
        self._read: dict[int, list[int]] = defaultdict(list)
        for row in np.flatnonzero(~tensors.output).tolist():
            call, made = int(tensors.call[row]), int(flow.producer[row])
            if made >= 0:
                self._readers[made].append(call)
            if tensors.parameter[row] and tensors.named[row]:
                self._read[int(tensors.named[row])].append(call)

    def of_results(self, forward: int, before: int) -> int:
        """The last backward call before one, of what reads a forward call's results."""
        return self._last(self._readers.get(forward, []), before)

    def of_parameter(self, name: int, before: int) -> int:
        """The same of what reads a parameter."""
        return self._last(self._read.get(name, []), before)

    def _last(self, forward: list[int], before: int) -> int:
        known = (self._gradient_of.get(call, NONE) for call in forward)
        return max((call for call in known if call < before), default=NONE)

    def made(self, call: int, size: int) -> int:
        """The row of a call's results that is so large, else the first of them."""
        rows = outputs_of(self._side, call) if call >= 0 else []
        alike = [row for row in rows if self._side.tensors.size[row] == size]
        return (alike or rows or [NONE])[0]


def _take_last(waiting: list[int], sizes: Ints, size: int) -> int:
    """Take the last of some rows that is so large, else the last."""
    alike = [row for row in waiting if sizes[row] == size]
    row = (alike or waiting)[-1]
    waiting.remove(row)
    return row
