# SPDX-License-Identifier: Apache-2.0
"""The status line of `opscope run`: on a terminal, on a row of its own, given back whatever ends."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from opscope.cli import status
from opscope.cli.status import seen, status_line

KEPT, GIVEN_BACK = b"\x1b[1;23r", b"\x1b[r"
SHOWN = b"\x1b[7mopscope  step"
PROGRAM = """
import pathlib, sys, time, torch
while not pathlib.Path(sys.argv[1]).exists():
    model = torch.nn.Linear(2, 1)
    model(torch.ones(3, 2)).sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    time.sleep(0.05)
print("over")
"""


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "shown"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
        ({"TERM": "xterm", "CI": "1"}, False),
        ({"TERM": "xterm-color", "JPY_PARENT_PID": "17"}, False),
    ],
)
def test_only_a_terminal_that_can_show_it_is_drawn_on(
    environment: dict[str, str], *, shown: bool
) -> None:
    assert seen(Terminal(), environment) is shown
    assert not seen(io.StringIO(), environment)


class Watched:
    """A command on a terminal of 24 rows that nobody else writes to."""

    def __init__(self, *words: str) -> None:
        environment = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
        self.pid, self.screen = pty.fork()
        if self.pid == 0:
            os.execve(words[0], words, {**environment, "TERM": "xterm"})
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.written = b""

    def until(self, codes: bytes) -> None:
        """Read on until the codes have been written; two minutes at most."""
        ends = time.monotonic() + 120
        while codes not in self.written and time.monotonic() < ends and self.read():
            pass
        assert codes in self.written, self.written

    def read(self) -> bool:
        """What is written next; whether more may come."""
        if not select.select([self.screen], [], [], 1.0)[0]:
            return True
        try:
            more = os.read(self.screen, 1 << 16)
        except OSError:  # the other side is closed
            return False
        self.written += more
        return bool(more)


def recorded(tmp_path: Path, *options: str) -> Watched:
    (tmp_path / "train.py").write_text(PROGRAM)
    words = [sys.executable, "-m", "opscope", "run", "-o", str(tmp_path / "run"), *options, "--"]
    return Watched(*words, sys.executable, str(tmp_path / "train.py"), str(tmp_path / "enough"))


@pytest.mark.zoo
def test_a_row_is_kept_while_the_command_runs_and_given_back_before_the_verdict(
    tmp_path: Path,
) -> None:
    terminal = recorded(tmp_path)
    terminal.until(SHOWN)
    (tmp_path / "enough").touch()
    while terminal.read():
        pass
    _, status = os.waitpid(terminal.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    kept, given_back = terminal.written.index(KEPT), terminal.written.rindex(GIVEN_BACK)
    assert kept < terminal.written.index(SHOWN) < given_back
    assert given_back < terminal.written.index(b"no overflow, NaN or Inf")


def test_who_does_not_give_the_row_back_in_time_is_done_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process as nice as that one gets no turn on a busy machine."""
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def started(_: Path) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        return process

    monkeypatch.setattr(status, "started", started)
    monkeypatch.setattr(status, "GOODBYE", 0.1)
    monkeypatch.setenv("TERM", "xterm")
    for name in ("CI", "JPY_PARENT_PID", "INSIDE_EMACS"):
        monkeypatch.delenv(name, raising=False)
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with status_line(Path("run")):
            pass
        assert select.select([ours], [], [], 10.0)[0], "nothing is written"
        assert GIVEN_BACK in os.read(ours, 1 << 10)
    os.close(ours)


@pytest.mark.zoo
def test_a_launcher_that_is_killed_leaves_the_terminal_whole(tmp_path: Path) -> None:
    terminal = recorded(tmp_path)
    terminal.until(SHOWN)
    os.kill(terminal.pid, signal.SIGKILL)
    terminal.until(GIVEN_BACK)
    os.waitpid(terminal.pid, 0)
    (tmp_path / "enough").touch()


def test_what_is_raised_meanwhile_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    for name, value in {"TERM": "xterm", "PATH": ""}.items():
        monkeypatch.setenv(name, value)
    for name in ("CI", "JPY_PARENT_PID", "INSIDE_EMACS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError), status_line(tmp_path):
        raise FileNotFoundError


@pytest.mark.zoo
def test_nothing_is_drawn_where_it_is_not_wanted(tmp_path: Path) -> None:
    (tmp_path / "enough").touch()
    terminal = recorded(tmp_path, "--no-status")
    while terminal.read():
        pass
    _, status = os.waitpid(terminal.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert KEPT not in terminal.written
