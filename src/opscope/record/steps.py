# SPDX-License-Identifier: Apache-2.0
"""When a training step ends (docs/schema.md, Steps): a small state machine fed by what the program does.

The last optimizer step that follows a backward pass ends a step; with several optimizers, all that are in use have to have
stepped. GradScaler's update ends a step whose optimizer it skipped. Marks by the user, or a module whose forward calls
are counted, take over for good.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Steps:
    """Tells `end(skipped)` whenever a step is over; `live` names the optimizers that exist now."""

    def __init__(self, end: Callable[[bool], None], live: Callable[[], set[Hashable]], *, module: str | None = None) -> None:
        self.module = module
        self.marked = False
        self._end = end
        self._live = live
        self._depth = 0
        self._backward = False
        self._expected: set[Hashable] = set()
        self._idle: set[Hashable] = set()
        self._stepped: set[Hashable] = set()
        self._entered = False
        self._noticed = False

    def backward(self) -> None:
        """A backward pass is under way."""
        self._backward = True

    def optimizer_begins(self, optimizer: Hashable) -> None:
        if self._depth == 0 and optimizer in self._stepped and self._backward:
            self._idle |= self._expected - self._stepped
            self._finish(skipped=False)
            self._backward = True  # the pass that led here belongs to the step that now runs
        self._depth += 1

    def optimizer_ends(self, optimizer: Hashable) -> None:
        self._depth = max(0, self._depth - 1)
        if not self._backward:
            return
        self._stepped.add(optimizer)
        self._idle.discard(optimizer)
        if self._depth:
            return
        if optimizer not in self._expected:
            self._expected = self._live() | {optimizer}
        if self._expected - self._idle <= self._stepped:
            self._finish(skipped=False)

    def scaler_updates(self) -> None:
        """GradScaler.update ran; a step is still open when its optimizer was skipped."""
        if self._depth == 0 and self._backward:
            self._finish(skipped=not self._stepped)

    def module_enters(self, path: str) -> None:
        if self.module is None or self.marked or path != self.module:
            return
        if self._entered:
            self._end(False)  # noqa: FBT003 - the callback's one argument
        self._entered = True

    def mark(self, *, idle: bool = False) -> None:
        """The program itself says that a step is over; idle: nothing has run since the last one ended.

        The first time that is the end of the step whose optimizer was noticed just before.
        """
        noticed = idle and self._noticed and not self.marked and not self._backward
        self.marked = True
        self._clear()
        if not noticed:
            self._end(False)  # noqa: FBT003 - the callback's one argument

    def _finish(self, *, skipped: bool) -> None:
        self._clear()
        if not self.marked and self.module is None:
            self._noticed = True
            self._end(skipped)

    def _clear(self) -> None:
        self._backward = False
        self._stepped.clear()
