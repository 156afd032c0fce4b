# SPDX-License-Identifier: Apache-2.0
"""When a training step ends (docs/schema.md, Steps): a small state machine fed by what the program
does.

The last optimizer step that follows a backward pass ends a step; with several optimizers, all that
are in use have to have stepped. GradScaler's update ends a step whose optimizer it skipped. Marks
by the user, or a module whose forward calls are counted, take over for good. Without an optimizer
the model that was called first begins a step when it is called again after a backward pass, or,
where it infers, from a line that called it in this step before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Steps:
    """Tells `end(skipped)` whenever a step is over; `live` names the optimizers that exist now."""

    def __init__(
        self,
        end: Callable[[bool], None],
        live: Callable[[], set[Hashable]],
        *,
        module: str | None = None,
    ) -> None:
        self.module = module
        self.marked = False
        self.begun = False  # what ended the last step began one: it is the end of nothing else
        self._end = end
        self._live = live
        self._depth = 0
        self._backward = False
        self._expected: set[Hashable] = set()
        self._idle: set[Hashable] = set()
        self._stepped: set[Hashable] = set()
        self._before: set[Hashable] = set()  # those that stepped in the step before
        self._entered = False
        self._noticed = False
        self._first: Hashable = None
        self._returned = False
        self._calls: set[tuple[Hashable, Hashable]] = set()
        self._learns = False
        self._has_optimizer = False
        self._asked = 0

    def backward(self) -> None:
        """A backward pass is under way."""
        if not self._learns:
            self._asked = 0
        self._backward = self._learns = True

    def model_enters(
        self,
        model: Hashable,
        line: Hashable = None,
        *,
        infers: bool = False,
        continues: bool = False,
    ) -> None:
        """The program calls a model from a line outside of any model; where there is no optimizer,
        that may begin a step.

        Once the model that was called first has come back, others that the step calls begin none.
        infers: no gradient can come of the
        call. continues: it takes up what was computed before in the same pass, as a cell does its
        state. Of a call that is neither nobody knows whether a backward pass will follow; in a
        program that had none it infers.
        """
        if self._first is None:
            self._first = model
        first, call = model == self._first, (model, line)
        again = call in self._calls and (infers or not (continues or self._learns))
        begins = first and (self._backward or again)
        if (
            (begins or (again and not self._returned))
            and not self._depth
            and not self._optimized(infers=infers)
        ):
            self._returned = self._returned or begins
            lines = set() if first else {each for each in self._calls if each[0] == self._first}
            self._finish(skipped=False)
            self.begun = not self.marked and self.module is None
            # a model that was called between calls of the first has not brought that one back
            self._calls = lines
        self._calls.add(call)

    def _optimized(self, *, infers: bool) -> bool:
        """Whether an optimizer exists; looking for one is slow, so it is looked for the 1st, 2nd,
        4th, 8th … time.
        """
        self._asked += 1
        if (infers or not self._has_optimizer) and self._asked & (self._asked - 1) == 0:
            self._has_optimizer = bool(self._live())
        return self._has_optimizer

    def optimizer_begins(self, optimizer: Hashable) -> None:
        self._has_optimizer = True
        if self._depth == 0 and optimizer in self._stepped and self._backward:
            self._idle |= self._expected - self._stepped
            self._finish(skipped=False)
            self._backward = True  # the pass that led here belongs to the step that now runs
        self._depth += 1

    def optimizer_ends(self, optimizer: Hashable) -> None:
        self._depth = max(0, self._depth - 1)
        if not self._backward:
            if self._expected and not self._depth:  # made after the others, it steps behind them
                self._expected = self._expected | {optimizer}
            return
        self._stepped.add(optimizer)
        self._idle.discard(optimizer)
        if self._depth:
            return
        if optimizer not in self._expected:
            if self._expected:
                self._stepped |= self._before  # they did not know of this one, which goes with them
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
        self._entered = self.begun = True

    def mark(self, *, idle: bool = False) -> None:
        """The program itself says that a step is over; idle: nothing has run since the last one
        ended.

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
        self._backward = self.begun = False
        self._calls.clear()
        self._before, self._stepped = self._stepped, set()
