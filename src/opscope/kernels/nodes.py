# SPDX-License-Identifier: Apache-2.0
"""Which call made each autograd node, in the plain bookkeeping.

Autograd numbers the nodes of each thread from 0: those of each graph that is executed again are
kept apart from the program's, by its call.
"""

from __future__ import annotations

from threading import get_ident

from opscope.kernels.calls import Draft, forget_oldest

NODES = 1 << 32  # of one call that is executed again


class Nodes:
    """Calls by the autograd node that they made, each thread's in its own numbers."""

    def __init__(self) -> None:
        self._calls: dict[int, Draft] = {}
        self._again: dict[int, tuple[int, int]] = {}

    @property
    def again(self) -> int | None:
        """The call that this thread executes again, None where its calls are the program's."""
        again = self._again.get(get_ident())
        return None if again is None else again[0]

    def turn(self, index: int, forward: int) -> None:
        """This thread executes a call again, -1: none; forward: the call that its nodes are of."""
        self._again.pop(get_ident(), None)
        if index >= 0:
            self._again[get_ident()] = index, forward

    def forget(self, forward: int) -> None:
        """No backward pass goes through the nodes of this call any more."""
        for number in [each for each in self._calls if each // NODES == forward + 1]:
            del self._calls[number]

    def of(self, node: int) -> Draft | None:
        """The call that made a node, None where nobody knows it."""
        return self._calls.get(self._numbered(node))

    def claim(self, node: int, draft: Draft) -> None:
        """A call made a node, whoever was thought to have."""
        self._calls[self._numbered(node)] = draft

    def own(self, node: int, draft: Draft) -> None:
        """A call made a node that no other did."""
        self._calls.setdefault(self._numbered(node), draft)

    def keep_since(self, step: int) -> None:
        """Forget the calls of earlier steps."""
        self._calls = {node: draft for node, draft in self._calls.items() if draft.step >= step}

    def keep(self, most: int) -> None:
        """Forget the oldest beyond so many."""
        forget_oldest(self._calls, most=most)

    def _numbered(self, node: int) -> int:
        again = self._again.get(get_ident())
        return node if again is None else node + (again[1] + 1) * NODES
