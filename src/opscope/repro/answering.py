# SPDX-License-Identifier: Apache-2.0
"""A process that answers each line it is sent by a line: one that executes kernels, which may end
it or never return.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

CHUNK = 1 << 16


def environment_without(*prefixes: str) -> dict[str, str]:
    """That of this process, without the variables whose names begin so: a child records nothing."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


class AnsweringProcess:
    """Started when it is first sent a line, and again after it has ended. Used as a with-block, or
    ended by hand.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.command, self.environment = command, environment
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> AnsweringProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it in a session of its own, so that what it forks can be ended with it; OSError."""
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(self.environment),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Of the process that runs; 0 where none does."""
        return 0 if self._process is None else self._process.pid

    def fileno(self) -> int:
        """What `select` waits for: readable once there is an answer, or the process has ended."""
        assert self._process is not None and self._process.stdout is not None  # noqa: S101, PT018 - for the type checker
        return self._process.stdout.fileno()

    def send(self, line: bytes) -> None:
        """Send a line, without its end; a process that has ended takes it and answers nothing."""
        if self._process is None:
            self.start()
        assert self._process is not None and self._process.stdin is not None  # noqa: S101, PT018
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def receive(self, timeout: float | None = None) -> bytes:
        """The answer with its line end, nothing where the process ended; TimeoutError after so many
        seconds.
        """
        text, deadline = b"", None if timeout is None else time.monotonic() + timeout
        while not text.endswith(b"\n"):
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self], [], [], left)[0]:
                raise TimeoutError(f"no answer after {timeout:g} s")
            part = os.read(self.fileno(), CHUNK)
            if not part:
                return b""
            text += part
        return text

    def ask(self, line: bytes, timeout: float | None = None) -> bytes:
        """Send and receive; whatever interrupts that ends the process, TimeoutError too."""
        try:
            self.send(line)
            return self.receive(timeout)
        except BaseException:
            self.end()
            raise

    def end(self, patience: float = 0.0) -> int:
        """End it and what it forked, and answer its exit status, 0 where it never ran; it has
        twice `patience` seconds to end by itself.
        """
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        for asked in (False, True) if patience else ():
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                if asked:
                    process.terminate()
                process.wait(patience)
        kill_group(process)
        code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return code


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a group, and all that it started in it, unasked."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def ending(code: int) -> str:
    """An exit status in words."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"
