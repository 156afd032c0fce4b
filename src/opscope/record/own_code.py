# SPDX-License-Identifier: Apache-2.0
"""Which files are the user's own, and where in them an exception came from."""

from __future__ import annotations

import re
import sysconfig
import traceback
from functools import lru_cache
from pathlib import Path
from types import TracebackType

MOST = 300  # characters of a message
_FRAME = re.compile(r'^[ \t]*File "(.+)", line (\d{1,9}), in (.+)$', re.MULTILINE)

OPSCOPE = str(Path(__file__).parents[1])
LIBRARIES = tuple(
    {
        p
        for key, p in sysconfig.get_paths().items()
        if key in {"stdlib", "platstdlib", "purelib", "platlib"} and p
    }
)


def frames_in(text: str) -> list[tuple[str, int, str]]:
    """The frames of a stack as Python prints it, in its order: file, line, function."""
    return [(file, int(line), name) for file, line, name in _FRAME.findall(text)]


def inside(file: str, folder: str) -> bool:
    return file == folder or file.startswith(f"{folder}/")


@lru_cache(maxsize=4096)
def is_user(file: str) -> bool:
    """Whether a file is the user's own: not of Python, not installed, not generated."""
    if file.startswith("<"):
        return False
    parts = file.replace("\\", "/")
    return not (
        "/site-packages/" in parts
        or "/dist-packages/" in parts
        or any(inside(file, library) for library in LIBRARIES)
    )


def told(error: BaseException, trace: TracebackType | None) -> str:
    """An exception as one line: `ValueError: no such word (/home/me/data.py:31)`, where the line is
    the innermost of the user's own code, if any is.
    """
    own = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(trace)
        if is_user(frame.f_code.co_filename) and not inside(frame.f_code.co_filename, OPSCOPE)
    ]
    try:
        message = str(error).strip().partition("\n")[0][:MOST]
    except Exception:  # noqa: BLE001 - the program's own class says what it is
        message = ""
    name = type(error).__name__
    words = f"{name}: {message}" if message else name
    return f"{words} ({own[-1]})" if own else words
