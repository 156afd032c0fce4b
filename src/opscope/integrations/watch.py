# SPDX-License-Identifier: Apache-2.0
"""One training recorded for a trainer that says when it begins, when a step has ended, and how it
calls that step.

The recording finds its steps itself, so that a step that a GradScaler skips stays one. When a step
overflowed, what is there of the run is scanned: only a finding stops a training, never an overflow
that the program guards against.
"""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack
from typing import Any

from opscope.errors import UsageError
from opscope.record.join import record
from opscope.run.contain import contain, reason, tell
from opscope.run.printable import printable
from opscope.run.selection import parse_selection
from opscope.scan.api import scan

ACTIONS = ("keep", "stop")
SKIP = "skip"  # updates by gradients that are not finite are not made


class Watch:
    """What the callbacks of all trainers share.

    on_overflow is one of actions: keep goes on, skip goes on without the updates of torch's
    optimizers by gradients that are not finite, every other word is an action of the trainer, taken
    when step_ended says so. options are those of opscope.record. Raises UsageError for what neither
    takes, before anything is trained; later nothing is raised.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        on_overflow: str = "keep",
        actions: tuple[str, ...] = ACTIONS,
        **options: Any,
    ) -> None:
        if on_overflow not in actions:
            raise UsageError(f"on_overflow {on_overflow!r}: not one of {', '.join(actions)}")
        self.on_overflow = on_overflow
        self._path, self._options = path, options
        self._recording = record(path, **options)
        self._running = False
        self._seen: int | None = None
        self._skipping = ExitStack()

    @property
    def path(self) -> str | None:
        """Where the run lies, once it has begun."""
        return None if self._recording.path is None else str(self._recording.path)

    def begin(self) -> None:
        """The training begins; a second call while it lasts does nothing."""
        if self._running:
            return
        self._recording = record(self._path, **self._options)
        self._seen, self._running = None, True
        if contain(self._failed, self._recording.__enter__) is not None:
            atexit.register(self.end)
            if self.on_overflow == SKIP:
                contain(self._failed, self._skip)

    def step_ended(self, **counters: object) -> bool:
        """A step of the trainer is over, which it knows by this place (epoch=1, batch=7, …).

        Whether the step has a finding that is to be acted upon.
        """
        return self._running and bool(contain(self._failed, self._judged, counters))

    def mark_step(self) -> None:
        """For a trainer whose optimizer is none of torch's: the step ends here."""
        if self._running:
            contain(self._failed, self._recording.step)

    def end(self) -> None:
        """The training is over; a second call does nothing."""
        if not self._running:
            return
        self._running = False
        atexit.unregister(self.end)
        self._skipping.close()
        contain(self._failed, self._recording.__exit__, None, None, None)
        if self.path is not None:
            tell(f"recorded; next: opscope scan {printable(self.path)}")

    def _judged(self, counters: dict[str, object]) -> bool:
        recording = self._recording
        step = recording.flagged
        if step is None or step == self._seen or recording.path is None:
            return False
        self._seen = step
        recording.note(
            step, ", ".join(f"{name} {_short(value)}" for name, value in counters.items())
        )
        if self.on_overflow == "keep":
            return False
        recording.flush()
        document = scan(recording.path, selection=parse_selection(steps=str(step)))
        if not document.findings:
            return False
        tell(f"{printable(document.findings[0].line())}; on_overflow: {self.on_overflow}")
        return self.on_overflow != SKIP

    def _skip(self) -> None:
        from opscope.integrations.gradients import skip_unsound_steps

        self._skipping.callback(skip_unsound_steps().remove)

    def _failed(self, error: BaseException) -> None:
        self._running = False
        self._skipping.close()
        tell(f"the training is not watched any more: {reason(error)}")


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
