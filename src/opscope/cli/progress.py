# SPDX-License-Identifier: Apache-2.0
"""How far a verb is: a bar with an estimate on a terminal's stderr, once it takes longer than two seconds; nothing elsewhere."""

from __future__ import annotations

import sys
import time
from pathlib import PurePath
from typing import Any

PATIENCE = 2.0  # seconds without a word


class Progress:
    """A with-block that gives a function to be told what is done, how much of it, and of how much (0 where nobody knows)."""

    def __init__(self, *, quiet: bool = False, patience: float = PATIENCE) -> None:
        self._watched, self._patience = not quiet and sys.stderr.isatty(), patience
        self._begun = time.monotonic()
        self._bar: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Progress:
        return self

    def __call__(self, what: str, done: int, total: int) -> None:
        if not self._watched or (self._bar is None and time.monotonic() - self._begun < self._patience):
            return
        if self._bar is None:
            self._bar = _bar()
            self._bar.start()
        if what not in self._tasks:
            from opscope.run.printable import printable

            self._tasks[what] = self._bar.add_task(printable(PurePath(what).name), total=total or None)
        self._bar.update(self._tasks[what], completed=done, total=total or None)

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _bar() -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from opscope.report.console import make_console

    words = TextColumn("{task.description}", markup=False)
    columns = (words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    return Bar(*columns, console=make_console(stderr=True), transient=True)
