# SPDX-License-Identifier: Apache-2.0
"""Text copied from a terminal or a page, with its lines made whole: wrapped at the terminal's
width, or after a comma.
"""

from __future__ import annotations

import re
from itertools import pairwise

LIMIT = 1 << 20  # bytes of text that is looked at; logs are longer, and their lines are not wrapped
_NARROW, _WIDE = 40, 320  # characters of a terminal's line
_HEAD = re.compile(rb"\[[A-Z]{4,8}\]\s*\w+\(-?\d+,[^)\n]{0,64}\):\d{4}-")
# What the first line of something begins with, so that it does not go on with the line before it.
_STARTS = re.compile(
    rb"\s*$|[>#$|]|\[|\(?[\w.@-]*\)?\s?\w+@\S+[#$]|E[0-9A-Z]\d{4}\b|coreId\s*\(|(?:The|Aicore|AI "
    rb"Core|aicore|An|Stream|rt\w+|Trace[Bb]ack|"
    rb"Rectify|Solution|Possible|Search|Fault|\w+Error:|File)\b(?! (?:of|id)\b)|\s{4,}\S"
)
_OPEN_ASSERTION = re.compile(
    rb"\[ASSERT\][^`]*`[^']*$"
)  # a kernel's assertion whose condition goes on
_OPEN_END = re.compile(rb"[,:=(\[]\s*$")


def whole_lines(text: bytes) -> bytes:
    """The text with wrapped lines joined; as it is where nothing shows that it was wrapped.

    Wrapped is text in which several different lines have the same greatest length, a terminal's.
    Text without any record's head is also joined where a line ends in a comma and the next does not
    begin anything.
    """
    lines = text.replace(b"\r\n", b"\n").split(b"\n")
    width = _width(lines)
    loose = _HEAD.search(text) is None
    if width is None and not loose and b"[ASSERT]" not in text:
        return text
    joined: list[bytes] = []
    before = b""
    for line in lines:
        if joined and not _STARTS.match(line) and _goes_on(before, width, loose=loose):
            joined[-1] += (
                line
                if before[-1:].isspace() or (width is not None and _length(before) == width)
                else b" " + line.lstrip()
            )
        else:
            joined.append(line)
        before = line
    return b"\n".join(joined)


def _width(lines: list[bytes]) -> int | None:
    """The width the text was wrapped at; None where its longest lines have nothing behind them, or
    are one and the same.
    """
    width = max(map(_length, lines), default=0)
    if not _NARROW <= width <= _WIDE:
        return None
    full = {
        line
        for line, after in pairwise(lines)
        if _length(line) == width and not _STARTS.match(after)
    }
    return width if len(full) > 1 else None


def _goes_on(before: bytes, width: int | None, *, loose: bool) -> bool:
    if (width is not None and _length(before) == width) or _OPEN_ASSERTION.search(before):
        return True
    return _OPEN_END.search(before) is not None and (loose or width is not None)


def _length(line: bytes) -> int:
    return len(line.decode("utf-8", "replace"))
