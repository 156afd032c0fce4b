# SPDX-License-Identifier: Apache-2.0
"""Ends a MindSpore program, cleanly, once the last wanted iteration has been dumped."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path

POLL_SECONDS = 0.05


def stop_after(dump: Path, last: int) -> threading.Thread:
    """Watch the dump from a daemon thread; when iteration last + 1 begins to land, the main thread raises SystemExit.

    So that iteration must be among those MindSpore dumps; the run leaves it out.
    """
    thread = threading.Thread(target=_watch, args=(dump, last), name="opscope-stop", daemon=True)
    thread.start()
    return thread


def _watch(dump: Path, last: int) -> None:
    while not any(path.is_dir() for path in dump.glob(f"rank_*/*/*/{last + 1}")):
        time.sleep(POLL_SECONDS)
    main = threading.main_thread().ident
    if main is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(SystemExit))
