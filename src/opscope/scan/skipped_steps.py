# SPDX-License-Identifier: Apache-2.0
"""Steps that a GradScaler skipped because a scaled gradient overflowed: expected, unless it goes on
and on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from opscope.judge.operators import element_of
from opscope.judge.reading import is_finite, is_read
from opscope.operators.catalogue import family
from opscope.scan.dataflow import Origin

if TYPE_CHECKING:
    from opscope.questions.rows import Node

PATIENCE = 5  # this many skipped steps in a row are no longer a search for the scale
_CHECK = "_amp_foreach_non_finite_check_and_unscale"


class Skips:
    """The skipped steps of every process: those in which the scaler's check read a gradient that is
    not finite.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.steps: dict[int, set[int]] = defaultdict(set)
        for node in nodes:
            if family(node.op) == _CHECK and any(
                element_of(row.slot) is not None and is_read(row) and not is_finite(row)
                for row in node.inputs
            ):
                self.steps[node.process].add(node.step)
        self._stubborn = {process: _runs(steps) for process, steps in self.steps.items()}

    def excuses(self, origin: Origin, damaged_parameters: set[int]) -> bool:
        """Whether an origin lies in a skipped step, its damage stayed out of the parameters, and
        the skipping ended.
        """
        process, step = origin.node.process, origin.node.step
        if step not in self.steps.get(process, ()) or step in self._stubborn[process]:
            return False
        return origin.bit not in damaged_parameters

    def stubborn(self, process: int) -> frozenset[int]:
        """Skipped steps of a process that are part of five or more in a row."""
        return self._stubborn.get(process, frozenset())


def _runs(steps: set[int]) -> frozenset[int]:
    """The steps that lie in runs of at least PATIENCE consecutive ones."""
    found: set[int] = set()
    run: list[int] = []
    for step in sorted(steps):
        run = [*run, step] if run and step == run[-1] + 1 else [step]
        if len(run) >= PATIENCE:
            found.update(run)
    return frozenset(found)
