# SPDX-License-Identifier: Apache-2.0
"""When a program comes back from its backward passes, in plain Python: Recorder::follow_loop of
native/recorder.cpp.
"""

from __future__ import annotations

from typing import Protocol


class PassBinding(Protocol):
    """What is asked of the framework: the backward pass that runs in this thread (-1: none),
    whether the program may come back from the one that has begun, and whether it has.
    """

    def graph_task(self) -> int: ...
    def pass_begins(self) -> bool: ...
    def came_back(self) -> bool: ...


class Passes:
    """Part of a bookkeeper; loops: iterations of the program's own loops may be steps."""

    binding: PassBinding
    active: bool
    loops = False
    _pass = -1  # the one that began last
    _passed = False  # the program may come back from it

    def follow_loop(self) -> None:
        """Asked before a call: whether it begins a new iteration, a backward pass having ended."""
        if not self.active or not self.loops:
            return
        now = self.binding.graph_task()
        if now < 0:
            self._passed = self._passed and not self.binding.came_back()
        elif now != self._pass:
            self._pass, self._passed = now, self.binding.pass_begins()
