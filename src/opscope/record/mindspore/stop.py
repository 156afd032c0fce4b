# SPDX-License-Identifier: Apache-2.0
"""Ends a MindSpore program, cleanly, once the last wanted step has been recorded."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from pathlib import Path

POLL_SECONDS = 0.05


class _Failed(SystemExit):
    """SystemExit as the interpreter makes it from a class alone, with exit code 1."""

    def __init__(self) -> None:
        super().__init__(1)


def stop_program(code: int) -> None:
    """The main thread raises SystemExit at its next instruction; code is 0 or 1."""
    main = threading.main_thread().ident
    if main is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(main), ctypes.py_object(_Failed if code else SystemExit)
        )


def stop_after(dump: Path, last: int, unless: Callable[[], bool]) -> threading.Thread:
    """Watch the dump from a daemon thread; when iteration last + 1 begins to land, the program
    ends.

    So that iteration must be among those MindSpore dumps; the run leaves it out. The watch is over
    once `unless` says so: where the process counts steps itself it ends the program itself.
    """
    thread = threading.Thread(
        target=_watch, args=(dump, last, unless), name="opscope-stop", daemon=True
    )
    thread.start()
    return thread


def _watch(dump: Path, last: int, unless: Callable[[], bool]) -> None:
    while not any(path.is_dir() for path in dump.glob(f"rank_*/*/*/{last + 1}")):
        if unless():
            return
        time.sleep(POLL_SECONDS)
    if not unless():
        stop_program(0)
