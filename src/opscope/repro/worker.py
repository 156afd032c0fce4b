# SPDX-License-Identifier: Apache-2.0
"""A process that makes one call again and again, in a case's framework and libraries that it
imported once.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from opscope.errors import UnavailableError

SCRIPTS = Path(__file__).parent / "scripts"
START = 300.0  # seconds a process has to import its framework


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What making a candidate gave.

    status: done, cannot (the call cannot be made or judged), died, hang. pattern: by output slot
    its classes of non-finite values and what exact arithmetic gives there; grade: the largest error
    in units of what is allowed; undefined: slots of outputs in which a trusted kernel leaves what
    fresh memory held; seconds: what it took.
    """

    status: str
    shown: int = 0
    tried: int = 0
    told: str = ""
    pattern: dict[str, Any] = {}
    grade: float = 0.0
    seen: dict[str, Any] = {}
    code: int | None = None
    undefined: tuple[str, ...] = ()
    seconds: float = 0.0


class Worker:
    """A process that has imported the case's framework and libraries; it is started again when it
    dies or hangs.
    """

    def __init__(
        self,
        worker: Path,
        script: Path,
        imports: Sequence[str],
        *,
        clean: bool,
        python: str | None = None,
        allowed: Sequence[str] = (),
    ) -> None:
        lists = [json.dumps(list(words)) for words in (imports, allowed)]
        self.command = [
            python or sys.executable,
            str(worker),
            str(script),
            *lists,
            *(["--clean"] if clean else []),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: dict[str, Any], timeout: float) -> Trial:
        """The answer to a request; a worker that dies or does not answer in time counts as the
        candidate's end.
        """
        process = self._process or self._start()
        assert process.stdin is not None  # noqa: S101 - for the type checker
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = self._line(process, timeout)
        except BrokenPipeError:
            line = b""
        except BaseException:
            self.close()
            raise
        if line:
            return msgspec.json.decode(line, type=Trial)
        code = process.poll()
        self.close()
        return Trial(status="hang") if code is None else Trial(status="died", code=code)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("OPSCOPE")
        }
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        self._process = process
        try:
            said = json.loads(
                self._line(process, START)
                or b'{"status": "cannot", "told": "the worker did not start"}'
            )
        except BaseException:
            self.close()
            raise
        if said["status"] != "ready":
            self.close()
            raise UnavailableError(
                f"cannot be tried here: {said['told']}; python repro.py in that folder says more"
            )
        return process

    @staticmethod
    def _line(process: subprocess.Popen[bytes], timeout: float) -> bytes:
        assert process.stdout is not None  # noqa: S101
        text, deadline = b"", time.monotonic() + timeout
        while not text.endswith(b"\n"):
            ready, _, _ = select.select(
                [process.stdout], [], [], max(0.0, deadline - time.monotonic())
            )
            part = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not part:
                return b""
            text += part
        return text

    def close(self) -> None:
        """End the process and what it forked."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
