# SPDX-License-Identifier: Apache-2.0
"""Overflow that leaves every value finite: integers that wrapped, negatives made unsigned, results
clipped at the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from opscope.judge.arguments import parse_arguments
from opscope.judge.operators import element_of, is_per_element
from opscope.judge.overflow import Status, at_the_limit, newly_at_the_limit, status_of
from opscope.judge.reading import is_finite, is_read
from opscope.questions.findings import Accusation
from opscope.scan.dataflow import Flow
from opscope.scan.origins import LATER

if TYPE_CHECKING:
    from opscope.questions.rows import Node


def quiet_accusations(
    nodes: Iterable[Node],
    flow: Flow,
    raised: Callable[[Node], bool] = lambda _: False,
) -> list[Accusation]:
    """Calls whose outputs are finite, or were not read, and that overflowed all the same. raised:
    whether the device told that something overflowed when a call was made.
    """
    accused: dict[tuple[int, int], Accusation] = {}
    for node in nodes:
        if (
            id(node) in flow.unsound
            or id(node) in flow.wrapping
            or any(is_read(row) and not is_finite(row) for row in node.outputs)
            or _hands_on(node)
        ):
            continue
        status = _status(node)
        by_device = not status.bits and raised(node)
        if by_device:
            status = newly_at_the_limit(
                node.op, parse_arguments(node.args), node.inputs, node.outputs
            )
        follows = node.phase in LATER and (node.process, node.forward_index) in accused
        if (
            node.status or status.bits
        ) and not follows:  # the gradient of a call that is accused itself says nothing new
            accused[node.process, node.index] = _accusation(node, status, by_device=by_device)
    return list(accused.values())


def _hands_on(node: Node) -> bool:
    """Whether all that was said of a call may come of what it was given, where its results were not
    recorded.
    """
    return not node.outputs and any(is_read(row) and not is_finite(row) for row in node.inputs)


def _status(node: Node) -> Status:
    arguments = parse_arguments(node.args)
    if node.args is None and not node.inputs:
        return at_the_limit(node.op, node.outputs)
    if not is_per_element(node.op):
        return status_of(node.op, arguments, node.inputs, node.outputs)
    total = Status()
    for out in node.outputs:
        element = element_of(out.slot)
        element = int(out.slot) if element is None and out.slot.isdigit() else element
        mine = [row for row in node.inputs if element_of(row.slot) in {None, element}]
        total |= status_of(node.op, arguments.element(element or 0), mine, [out])
    return total


def _accusation(node: Node, status: Status, *, by_device: bool) -> Accusation:
    recorded_only = bool(node.status) and not status.bits
    unread = all(not is_read(row) for row in node.outputs)
    evidence: dict[str, Any] = {
        "reached": None,
        "path": [],
        "hidden_by": None,
        "arrived": False,
        "saturated": status.saturated,
    }
    if recorded_only:
        evidence["reported_by"] = "the device or the recorder"
    if by_device:
        evidence["reported_by"] = "the device"
    return Accusation(
        process=node.process,
        index=node.index,
        reasons=status.reasons,
        confidence=_confidence(node, status, recorded_only=recorded_only, unread=unread),
        evidence=evidence,
        judged=True,
    )


def _confidence(node: Node, status: Status, *, recorded_only: bool, unread: bool) -> str:
    if status.saturated:
        return "likely" if node.inputs else "suspected"
    return "likely" if recorded_only and unread else "proven"
