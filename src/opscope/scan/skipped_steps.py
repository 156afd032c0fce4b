# SPDX-License-Identifier: Apache-2.0
"""Steps that a GradScaler skipped because a scaled gradient overflowed: expected, unless it never
ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from opscope.judge.operators import element_of
from opscope.judge.reading import is_finite, is_read
from opscope.operators.catalogue import family
from opscope.run.query import rows_of
from opscope.run.vectors import calls_of
from opscope.scan.dataflow import Origin

if TYPE_CHECKING:
    from opscope.questions.rows import Node
    from opscope.run.protocol import Run

# This many skipped steps in a row, up to the last one, are no longer a search for the scale.
PATIENCE = 5
FLOAT_STATUS = "float status"  # in process.json where the process had a device that saturates
_CHECK = "_amp_foreach_non_finite_check_and_unscale"


class Skips:
    """The skipped steps of every process: those in which the scaler's check read a gradient that is
    not finite, or, where devices saturate, that ended without a step of the optimizer.
    """

    def __init__(self, nodes: Iterable[Node], run: Run) -> None:
        self.steps: dict[int, set[int]] = defaultdict(set)
        for node in nodes:
            if family(node.op) == _CHECK and any(
                element_of(row.slot) is not None and is_read(row) and not is_finite(row)
                for row in node.inputs
            ):
                self.steps[node.process].add(node.step)
        for told in run.processes:
            if told.torch.get(FLOAT_STATUS):  # there the check reads no gradients but the status
                self.steps[told.process].update(told.skipped_steps)
        long = {process for process, steps in self.steps.items() if len(steps) >= PATIENCE}
        last = _last_checks(run) if long else {}
        self._stubborn = {
            process: _run_up_to(last[process], self.steps[process]) for process in long
        }

    def excuses(self, origin: Origin, damaged_parameters: set[int]) -> bool:
        """Whether an origin lies in a skipped step, its damage stayed out of the parameters, and
        the skipping ended.
        """
        if not self.excuses_step(origin.node.process, origin.node.step):
            return False
        return origin.bit not in damaged_parameters

    def excuses_step(self, process: int, step: int) -> bool:
        """Whether a step was skipped, and the skipping ended."""
        return step in self.steps.get(process, ()) and step not in self.stubborn(process)

    def stubborn(self, process: int) -> frozenset[int]:
        """Skipped steps of a process, if it skipped five or more in a row and never recovered."""
        return self._stubborn.get(process, frozenset())


def _last_checks(run: Run) -> dict[int, int]:
    """The last step of each process in which the scaler checked."""

    checks = calls_of(run, lambda op: op.startswith(f"aten::{_CHECK}"))
    last: dict[int, int] = {}
    for process, step in rows_of(run, "calls", ("process", "step"), checks):
        last[process] = max(step, last.get(process, step))
    return last


def _run_up_to(last: int, steps: set[int]) -> frozenset[int]:
    """The steps that were skipped in a row up to the last one, where they are PATIENCE or more."""
    run = set()
    while last in steps:
        run.add(last)
        last -= 1
    return frozenset(run) if len(run) >= PATIENCE else frozenset()
