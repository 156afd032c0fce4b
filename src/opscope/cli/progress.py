# SPDX-License-Identifier: Apache-2.0
"""How far a verb is: a bar with an estimate on a terminal's stderr, once it takes longer than two
seconds; nothing elsewhere.
"""

from __future__ import annotations

import sys
import threading
from pathlib import PurePath
from typing import Any

PATIENCE = 2.0  # seconds without a word


class Progress:
    """A with-block that gives a function to be told what is done, how much of it, and of how much
    (0 where nobody knows).
    """

    def __init__(self, *, quiet: bool = False, patience: float = PATIENCE) -> None:
        self._watched = not quiet and sys.stderr.isatty()
        self._told: dict[str, tuple[int, int]] = {}
        self._tasks: dict[str, Any] = {}
        self._bar: Any = None
        self._lock = threading.Lock()
        # A part that takes minutes tells nobody anything before it is over: the bar comes by
        # itself.
        self._timer = threading.Timer(patience, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Progress:
        if self._watched:
            self._timer.start()
        return self

    def __call__(self, what: str, done: int, total: int) -> None:
        if not self._watched:
            return
        with self._lock:
            self._told[what] = done, total
            if self._bar is not None:
                self._draw(what)

    def _show(self) -> None:
        with self._lock:
            if not self._watched:
                return
            self._bar = _bar()
            self._bar.start()
            for what in self._told:
                self._draw(what)

    def _draw(self, what: str) -> None:
        from opscope.run.printable import printable

        done, total = self._told[what]
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(
                printable(PurePath(what).name), total=total or None
            )
        self._bar.update(self._tasks[what], completed=done, total=total or None)

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._watched = False
            if self._bar is not None:
                self._bar.stop()


def _bar() -> Any:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    from opscope.report.console import make_console

    words = TextColumn("{task.description}", markup=False)
    columns = (
        words,
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Bar(*columns, console=make_console(stderr=True), transient=True)
