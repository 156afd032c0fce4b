# SPDX-License-Identifier: Apache-2.0
"""How the command line fails and is ended: one line on stderr."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

from opscope.run.printable import printable

BUG = 101
INTERRUPTED = 130  # 128 + SIGINT


@contextlib.contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGHUP end a verb as Ctrl-C does, with all that it started; ignored ones (nohup)
    stay ignored.
    """
    here = threading.current_thread() is threading.main_thread()
    ending = {number for number in signal.Signals if number.name in {"SIGTERM", "SIGHUP"}}
    numbers = [number for number in ending if here and signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in numbers:
            signal.signal(number, signal.default_int_handler)
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def note(line: str, *, tool: str = "opscope") -> None:
    """One line on stderr, where everything goes that is not the result."""
    print(f"{tool}: {printable(' '.join(line.split()))}", file=sys.stderr, flush=True)


def report_error(error: Exception, code: int) -> int:
    """Say what went wrong in one line, and give back the exit code."""
    note(str(error) or type(error).__name__)
    return code


def report_bug(error: BaseException) -> int:
    """Say that opscope itself failed and where the traceback was written; the exit code for
    that.
    """
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w",
            prefix="opscope-bug-",
            suffix=".txt",
            delete=False,
            encoding="utf-8",
            errors="replace",
        ) as file:
            file.write(text)
        where = f"the traceback is in {file.name}"
    except OSError:
        where = f"the last line of the traceback: {text.splitlines()[-2].strip()}"
    note(f"this is a bug in opscope: {type(error).__name__}: {error}; {where}, please report it")
    return BUG
