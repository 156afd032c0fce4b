# SPDX-License-Identifier: Apache-2.0
"""Recording MindSpore in a process that no launcher watches: what the launcher does runs in a
thread of the process itself.

MindSpore's dump cannot be switched off again: of graphs that were compiled while it was on, what
they dump afterwards is deleted.
"""

from __future__ import annotations

import atexit
import shutil
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from opscope.record.mindspore.join import begin
from opscope.record.mindspore.place import remove_dump
from opscope.record.mindspore.watch import POLL_SECONDS, finished, watching

if TYPE_CHECKING:
    from opscope.record.config import RecordConfig


class InsideRecording:
    """One recording, from now until close()."""

    closed = False

    def __init__(self, config: RecordConfig, run: Path) -> None:
        self._stack = ExitStack()
        self._dumps = self._stack.enter_context(watching(run, config))
        self._joined = begin(config, run)

    def pause(self) -> None:
        """Watch nothing until resume()."""
        if self._joined.book is not None:
            self._joined.book.pause()

    def resume(self) -> None:
        if self._joined.book is not None:
            self._joined.book.resume()

    def mark_step(self) -> None:
        """The program says that a step is over."""
        if self._joined.book is not None:
            self._joined.book.mark_step()

    def close(self, exit_code: int | None = None) -> None:  # noqa: ARG002 - as a session is closed
        """Take what is left; a second call does nothing."""
        if self.closed:
            return
        self.closed = True
        self._joined.end()
        self._stack.close()
        for note in self._dumps.notes:
            print(f"opscope: {note}", file=sys.stderr)
        if self._joined.owned is not None:
            _sweep(self._joined.owned)


def _sweep(dump: Path) -> None:
    """Delete what goes on landing in a dump of ours, until the program ends."""

    def work() -> None:
        while not over.wait(POLL_SECONDS):
            for _, folders in finished(dump, set(), ended=False):
                for folder in folders:
                    shutil.rmtree(folder, ignore_errors=True)

    def end() -> None:
        over.set()
        thread.join()
        remove_dump(dump)

    over = threading.Event()
    thread = threading.Thread(target=work, name="opscope-sweep", daemon=True)
    thread.start()
    atexit.register(end)
