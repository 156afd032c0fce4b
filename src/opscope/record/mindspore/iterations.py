# SPDX-License-Identifier: Apache-2.0
"""Which step of a program in graph mode an iteration of one of its graphs is."""

from __future__ import annotations

_UPDATES = frozenset({"optimizer", "communication"})


class Iterations:
    """The graphs of one process, in the order in which they ran.

    MindSpore counts on when the gradients of a step are computed, so an optimizer that is compiled
    by itself is counted to the iteration after that of its gradients.
    """

    def __init__(self) -> None:
        self._iteration = -1
        self._begun = False  # whether anything but an optimizer ran in the iteration

    def step(self, iteration: int, phases: frozenset[str]) -> int:
        """The step of the next graph that ran, by its number and the phases of its calls."""
        if iteration != self._iteration:
            self._iteration, self._begun = iteration, False
        self._begun |= not ("optimizer" in phases and phases <= _UPDATES)
        return iteration if self._begun or not iteration else iteration - 1
