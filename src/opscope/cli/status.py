# SPDX-License-Identifier: Apache-2.0
"""The status line of `opscope run`: how far the recording is, on the last row of the terminal while
the command has the others.

A process of its own draws it, as nice as can be: what it takes, and what goes wrong in it, is not
the command's. It keeps the row by the terminal's scroll region (DECSTBM, ECMA-48 and the VT100's
manual), gives it back when the launcher ends in whatever way, and draws nothing while a program
reads key by key (an editor, a pager) or the job is in the background.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TextIO

from opscope.cli.diagnosis import NOT_FROM_HERE
from opscope.errors import OpscopeError

PATIENCE = 2.0  # seconds of a command that is soon over, which sees no line
EVERY = 1.0
ROWS = 8  # of a terminal that can spare one
GOODBYE = 5.0  # seconds to give the row back


@contextlib.contextmanager
def status_line(run: Path) -> Iterator[None]:
    """Show how far a run is as long as this lasts, where somebody sees it."""
    process = started(run) if seen(sys.stderr, os.environ) else None
    try:
        yield
    finally:
        if process is not None:
            process.terminate()
            try:
                process.wait(GOODBYE)
            except subprocess.TimeoutExpired:  # on a busy machine so nice a process hardly runs
                process.kill()
                process.wait()
                with contextlib.suppress(OSError):
                    give_back(sys.stderr.fileno(), os.get_terminal_size(sys.stderr.fileno()))


def started(run: Path) -> subprocess.Popen[bytes] | None:
    """The process that draws; None where none can be started."""
    try:
        return subprocess.Popen(
            [sys.executable, *NOT_FROM_HERE, "-m", __name__, str(run)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    except OSError:
        return None


def seen(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a person looks at a stream, on a terminal that has rows to choose from. A notebook's
    is none, nor is the log of a build, nor one where jobs cannot be told to be in front (Windows).
    """
    if not hasattr(os, "tcgetpgrp"):
        return False
    if not stream.isatty() or environment.get("TERM", "dumb") == "dumb":
        return False
    return not environment.keys() & {"CI", "JPY_PARENT_PID", "INSIDE_EMACS"}


def give_back(terminal: int, size: os.terminal_size) -> None:
    """All rows of a terminal are everybody's again, and the last one is empty."""
    os.write(terminal, f"\0337\033[r\033[{size.lines};1H\033[2K\0338".encode())


class LastRow:
    """The last row of a terminal, kept from whoever else writes to it; terminal is its descriptor,
    text what is to be read there.
    """

    def __init__(self, terminal: int) -> None:
        self.terminal = terminal
        self.text = ""
        self._size: os.terminal_size | None = None  # for which the row is kept

    def show(self) -> None:
        """Draw the text, or nothing where this is not the moment."""
        size = os.get_terminal_size(self.terminal)
        if not self.text or size.lines < ROWS or not self._is_ours():
            return
        if size != self._size:
            self._keep(size)
        from rich.cells import set_cell_size

        self._write(
            f"\0337\033[{size.lines};1H\033[7m{set_cell_size(self.text, size.columns)}\033[0m\0338"
        )

    def give_back(self) -> None:
        """The row is no longer kept."""
        if self._size is not None:
            give_back(self.terminal, self._size)
            self._size = None

    def _keep(self, size: os.terminal_size) -> None:
        """Rows scroll above the last one only. The cursor leaves the last row, and stays in its
        column: a program may have written half a line.
        """
        self._write(f"\033D\0337\033[1;{size.lines - 1}r\0338\033[A")
        self._size = size

    def _is_ours(self) -> bool:
        """Whether the job is in front, and no program has the keys one by one."""
        import termios

        lines = termios.tcgetattr(self.terminal)[3] & termios.ICANON
        return bool(lines) and os.tcgetpgrp(self.terminal) == os.getpgrp()

    def _write(self, codes: str) -> None:
        os.write(self.terminal, codes.encode())  # whole, so that nobody else's stands inside


def draw(run: Path, row: LastRow, launcher: int) -> None:
    """Show how far a run is until its launcher is gone."""
    from opscope.cli.watch import follow
    from opscope.run.printable import printable

    def tell(line: str) -> None:
        row.text = printable(f"opscope  {line}")
        row.show()

    follow(run, tell, sleep=lambda seconds: wait(seconds, row, launcher), every=EVERY)


def wait(seconds: float, row: LastRow, launcher: int) -> None:
    """Sleep, and draw the row again meanwhile: a program may have cleared the screen. SystemExit
    once the launcher is gone.
    """
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        time.sleep(min(left, EVERY))
        if os.getppid() != launcher:
            raise SystemExit
        row.show()


def main(run: str) -> None:
    """The process that draws."""
    launcher, row = os.getppid(), LastRow(sys.stderr.fileno())

    def end(_: int, __: FrameType | None) -> None:
        raise SystemExit

    def stop(_: int, __: FrameType | None) -> None:
        row.give_back()
        os.kill(os.getpid(), signal.SIGSTOP)

    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)  # meant for the command, or for nobody
    signal.signal(signal.SIGTSTP, stop)
    signal.signal(signal.SIGTERM, end)
    os.nice(19)
    try:
        wait(PATIENCE, row, launcher)
        draw(Path(run), row, launcher)
    except (OpscopeError, OSError):
        pass  # the run cannot be read, or the terminal is gone
    finally:
        with contextlib.suppress(OSError):
            row.give_back()


if __name__ == "__main__":
    main(sys.argv[1])
