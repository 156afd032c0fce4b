# SPDX-License-Identifier: Apache-2.0
"""Where an origin's damage got to: a loss, a gradient, a parameter; and by which calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from opscope.judge.operators import is_overwritten
from opscope.judge.reading import is_finite, is_read
from opscope.operators.catalogue import traits_of
from opscope.scan.dataflow import Flow, Identity, Mark, Origin, identity_of

if TYPE_CHECKING:
    from opscope.questions.rows import Node


class Reached(msgspec.Struct, frozen=True):
    """What was reached ("loss", "gradient", "parameter"), where, and the calls from the origin to
    there.
    """

    what: str
    step: int
    call: str
    tensor_name: str | None = None
    path: tuple[str, ...] = ()
    nan_at: str | None = None


class Reach:
    """First sink of every origin of a flow.

    losses: identities of the tensors that backward started from.
    """

    def __init__(self, flow: Flow, losses: frozenset[Identity]) -> None:
        self._flow = flow
        self._losses = losses
        self._backward_readers = {
            identity: any(node.phase == "backward" for node in readers)
            for identity, readers in flow.readers.items()
        }
        self._parameters = {
            (mark.row.process, mark.row.storage)
            for mark in (*flow.written, *flow.read)
            if mark.row.role == "parameter"
        }
        self.first: dict[int, tuple[str, Mark]] = {}
        self.damaged_parameters: set[int] = set()
        # in unset memory, with a backward pass, of which no parameter is known to get anything
        self.thrown_away: set[int] = set()
        for mark in flow.written:
            self._note(self._sink_of_output(mark), mark)
        for mark in flow.read:
            if mark.row.role in {"gradient", "parameter"}:
                self._note(mark.row.role, mark)

    def _note(self, what: str | None, mark: Mark) -> None:
        """Keep the earliest sink of each origin in the mark; a mask that is the loss becomes an
        origin itself.
        """
        if what is None or not is_read(mark.row) or is_finite(mark.row):
            return
        condition = mark.condition
        bits = condition.taint | condition.pending
        if not bits and condition.mask and what == "loss":
            bits = self._flow.mark
            self._flow.add(Origin(bits, mark.node, "mask", row=mark.row, confirmed=True, used=True))
        for origin in self._flow.of(bits):
            if (
                origin.row is not None
                and origin.cause == "arrived"
                and identity_of(origin.row) == identity_of(mark.row)
            ):
                continue  # what arrived reached nothing yet
            if what == "loss" and self._is_replaced(origin, mark):
                continue
            if origin.cause == "uninitialised" and self._may_be_thrown_away(what, mark):
                self.thrown_away.add(origin.bit)
                continue
            origin.confirmed = True
            if what == "parameter":
                self.damaged_parameters.add(origin.bit)
            known = self.first.get(origin.bit)
            if known is None or mark.node.index < known[1].node.index:
                self.first[origin.bit] = (what, mark)

    def _is_replaced(self, origin: Origin, mark: Mark) -> bool:
        """Whether the program trains on something else than what an operator of losses returned:
        `ctc_loss(zero_infinity=True)`, `nan_to_num` of a mean over no target.
        """
        return identity_of(mark.row) not in self._losses and self._flow.removed(origin)

    def _may_be_thrown_away(self, what: str, mark: Mark) -> bool:
        """Whether it is not yet known that the program uses what was made of unset memory: a pass
        over empty tensors, for shapes alone (torch.distributed.pipelining), has a loss and
        gradients too, which no parameter gets.
        """
        if what == "loss":
            return identity_of(mark.row) in self._losses
        return what == "gradient" and mark.row.role != "gradient"

    def _sink_of_output(self, mark: Mark) -> str | None:
        node, row = mark.node, mark.row
        identity = identity_of(row)
        if identity in self._losses or (
            node.phase == "forward" and row.size == 1 and traits_of(node.op).loss
        ):
            return "loss"
        if row.role in {"gradient", "parameter"}:
            return row.role
        if node.phase == "optimizer" and (row.process, row.storage) in self._parameters:
            return "parameter"
        if (
            node.phase == "backward"
            and identity is not None
            and not self._backward_readers.get(identity, False)
        ):
            return "gradient"
        return None

    def of(self, origin: Origin) -> Reached | None:
        """What an origin reached first, with the path there; None when it reached nothing."""
        reached = self.first.get(origin.bit)
        if reached is None:
            return None
        what, mark = reached
        nodes = self._path(origin, mark)
        nan_at = next((node.name for node in nodes if any(row.nan for row in node.outputs)), None)
        return Reached(
            what,
            mark.node.step,
            mark.node.name,
            mark.row.tensor_name,
            tuple(node.name for node in nodes),
            nan_at,
        )

    def _path(self, origin: Origin, mark: Mark) -> list[Node]:
        """Calls from the origin to the sink, found backwards through the inputs that carry the
        origin's bit.
        """
        path: list[Node] = []
        current: Mark | None = mark
        seen: set[int] = set()
        while current is not None and id(current.node) not in seen:
            node = current.node
            seen.add(id(node))
            path.append(node)
            if node is origin.node:
                break
            current = self._before(node, origin.bit)
        if path[-1] is not origin.node:
            path.append(origin.node)
        return path[::-1]

    def _before(self, node: Node, bit: int) -> Mark | None:
        """Who produced the input by which the bit came into a call; None where it arrived there."""
        for row in node.inputs:
            if is_overwritten(node.op, row.slot):
                continue
            identity = identity_of(row)
            mark = None if identity is None else self._flow.produced.get(identity)
            if (
                mark is not None
                and mark.node is not node
                and (mark.condition.taint | mark.condition.pending) & bit
            ):
                return mark
        return None
