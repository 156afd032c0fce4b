# SPDX-License-Identifier: Apache-2.0
"""stack.json, in both its forms: {"0": [[entry names], [frames]], …} and, before 2024, {entry name:
[frames]}.

A frame is "File {path}, line {n}, in {function}, \\n {source}", innermost first. Only forward
entries have stacks.
"""

from __future__ import annotations

import re
from typing import Any

_FRAME = re.compile(r"\s*File (?P<path>.+?), line (?P<line>\d{1,9}), in (?P<function>[^\n,]*)")
_LIBRARY = re.compile(r"(?:^|/)(?:site|dist)-packages/|(?:^|/)lib/python\d[\d.]*/|^<")
_FRAME_LIMIT = 1000


def read_stacks(value: Any) -> dict[str, tuple[str, ...]]:
    """Frames of each entry, "path:line in function", innermost first; {} for anything else than a
    stack.json.
    """
    if not isinstance(value, dict):
        return {}
    stacks: dict[str, tuple[str, ...]] = {}
    for key, item in value.items():
        if (
            isinstance(item, list)
            and len(item) == 2
            and all(isinstance(part, list) for part in item)
        ):
            frames = _frames(item[1])
            stacks |= {name: frames for name in item[0] if isinstance(name, str)}
        elif isinstance(item, list) and item:
            stacks[key] = _frames(item)
    return {name: frames for name, frames in stacks.items() if frames}


def _frames(lines: list[Any]) -> tuple[str, ...]:
    matches = (_FRAME.match(line) for line in lines[:_FRAME_LIMIT] if isinstance(line, str))
    return tuple(
        f"{frame['path']}:{frame['line']} in {frame['function'].strip()}"
        for frame in matches
        if frame
    )


def user_line(frames: tuple[str, ...]) -> str | None:
    """Innermost "path:line" that is not a library's, None where all are."""
    for frame in frames:
        line = frame.rpartition(" in ")[0] or frame
        if not _LIBRARY.search(line):
            return line
    return None
