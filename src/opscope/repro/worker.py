# SPDX-License-Identifier: Apache-2.0
"""A process that makes one call again and again, in a case's framework and libraries that it
imported once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from opscope.errors import UnavailableError
from opscope.repro.answering import AnsweringProcess, environment_without

SCRIPTS = Path(__file__).parent / "scripts"
START = 300.0  # seconds a process has to import its framework
NO_START = b'{"status": "cannot", "told": "the worker did not start"}'


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What making a candidate gave.

    status: ready (said once it has started), done, cannot (the call cannot be made or judged),
    died, hang. pattern: by output slot its classes of non-finite values and what exact arithmetic
    gives there; grade: the largest error in units of what is allowed; undefined: slots of outputs
    in which a trusted kernel leaves what fresh memory held; seconds: what it took.
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
        command = [
            python or sys.executable,
            str(worker),
            str(script),
            *lists,
            *(["--clean"] if clean else []),
        ]
        self._process = AnsweringProcess(command, environment_without("OPSCOPE"))

    def ask(self, request: dict[str, Any], timeout: float) -> Trial:
        """The answer to a request; a worker that dies or does not answer in time counts as the
        candidate's end.
        """
        if not self._process.running:
            self._start()
        try:
            line = self._process.ask(json.dumps(request).encode(), timeout)
        except TimeoutError:
            return Trial(status="hang")
        if line:
            return msgspec.json.decode(line, type=Trial)
        return Trial(status="died", code=self._process.end(1.0))

    def _start(self) -> None:
        self.close()
        self._process.start()
        try:
            greeting = msgspec.json.decode(self._process.receive(START) or NO_START, type=Trial)
        except TimeoutError:
            greeting = msgspec.json.decode(NO_START, type=Trial)
        except BaseException:
            self.close()
            raise
        if greeting.status != "ready":
            self.close()
            raise UnavailableError(
                f"cannot be tried here: {greeting.told}; python repro.py in that folder says more"
            )

    def close(self) -> None:
        """End the process and what it forked."""
        self._process.end()
