# SPDX-License-Identifier: Apache-2.0
"""Whole files, of no more bytes than a file of their kind can have."""

from __future__ import annotations

import os
from pathlib import Path

from opscope.errors import FormatError

# A pipe that lies among the files is not waited for. Windows has no such pipes, and reads texts
# unless it is told not to.
OPEN_FLAGS: int = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def read_bounded(path: str | Path, *, limit: int, what: str) -> bytes:
    """The bytes of a file; FormatError when it cannot be read, or is larger than limit bytes; what
    says what such a file is.
    """
    file = Path(path)
    try:
        if file.stat().st_size > limit:
            raise FormatError(path, f"{what} of more than {_rounded(limit)} is not read")
        return file.read_bytes()
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error


def read_bounded_text(path: str | Path, *, limit: int, what: str, encoding: str = "utf-8") -> str:
    """The text of such a file, every line ended by a line feed; bytes that are no text become
    replacement characters.
    """
    text = read_bounded(path, limit=limit, what=what).decode(encoding, "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _rounded(limit: int) -> str:
    return f"{limit >> 30} GiB" if limit >= 1 << 30 else f"{limit >> 20} MiB"
