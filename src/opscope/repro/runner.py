# SPDX-License-Identifier: Apache-2.0
"""Executes a repro folder in a fresh process and reads its verdict."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from opscope.errors import UsageError
from opscope.repro.answering import environment_without, kill_group

STATUSES = {
    "reproduced": "reproduced",
    "flaky": "flaky",
    "not reproduced": "not-reproduced",
    "cannot be tried": "cannot-try",
}
EXIT_CODES = {"reproduced": 1, "flaky": 1, "not-reproduced": 0}
CANNOT = "cannot be tried here: "  # how a script begins to say so
OUTPUT_LIMIT = 4 << 20


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What executing a repro gave.

    status: reproduced (every time), flaky (shown of tried times), not-reproduced, cannot-try
    (device, operator or library missing), timeout, died (the process ended without a verdict).
    exit_code is opscope's own: 1, 0 or 125. lines is the script's report for people, seen its
    statistics of the outputs by slot.
    """

    status: str
    exit_code: int
    shown: int = 0
    tried: int = 0
    device: str | None = None
    reason: str = ""
    lines: tuple[str, ...] = ()
    seen: dict[str, Any] = {}


def execute(  # noqa: PLR0913 - options of the script, each by its name
    directory: Path,
    *,
    device: str | None = None,
    dtype: str | None = None,
    repeat: int = 1,
    timeout: float = 300.0,
    imports: Sequence[str] = (),
    allowed: Sequence[str] = (),
    python: str | None = None,
) -> Outcome:
    """Run repro.py of a folder with this interpreter, or another one, unrecorded, and kill it after
    timeout seconds.

    It executes the code in that folder: only give it folders that opscope wrote or that you have
    read. UsageError when there is no repro.py in it.
    """
    script = directory.absolute() / "repro.py"
    if not script.is_file():
        raise UsageError(f"{script} is not there; give a folder that opscope repro wrote")
    command = [python or sys.executable, str(script), "--json", "--repeat", str(repeat)]
    command += ["--device", device] if device is not None else []
    command += ["--dtype", dtype] if dtype is not None else []
    for module in imports:
        command += ["--import", module]
    for pattern in allowed:
        command += ["--allow", pattern]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = _run(command, out, err, timeout)
        return _outcome(code, _tail(out), _tail(err), timeout)


def _run(command: Sequence[str], out: Any, err: Any, timeout: float) -> int | None:
    """Exit code, negative for a signal, None when the time was up; children of the script end with
    it.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        env=environment_without("OPSCOPE"),
        start_new_session=True,
    ) as process:
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            kill_group(process)
            return None
        except BaseException:
            kill_group(process)
            raise


def _tail(file: Any) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - OUTPUT_LIMIT))
    text: str = file.read().decode("utf-8", "replace")
    return text.strip()


def _outcome(code: int | None, out: str, err: str, timeout: float) -> Outcome:
    if code is None:
        return Outcome(status="timeout", exit_code=125, reason=f"no verdict after {timeout:g} s")
    result = _document(out)
    if result is None or code not in {0, 1, 125}:
        last = (err.splitlines() or ["no message"])[-1]
        if code == 125:
            return Outcome(status="cannot-try", exit_code=125, reason=last.removeprefix(CANNOT))
        ended = f"signal {_signal_name(-code)}" if code < 0 else f"exit code {code}"
        return Outcome(status="died", exit_code=125, reason=f"the script ended by {ended}: {last}")
    status = STATUSES.get(str(result.get("verdict")), "died")
    return Outcome(
        status=status,
        exit_code=EXIT_CODES.get(status, 125),
        shown=int(result.get("shown") or 0),
        tried=int(result.get("tried") or 0),
        device=result.get("device"),
        reason=str(result.get("reason", "")),
        lines=tuple(map(str, result.get("lines", ()))),
        seen=result.get("seen") or {},
    )


def _document(out: str) -> dict[str, Any] | None:
    """The script's JSON document: its last line, since an operator may print too."""
    try:
        document = json.loads((out.splitlines() or [""])[-1])
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
