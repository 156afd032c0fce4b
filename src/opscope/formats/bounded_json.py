# SPDX-License-Identifier: Apache-2.0
"""Read JSON that strangers wrote: NaN and Infinity accepted (msprobe writes them), size and depth
bounded, errors with an offset.

What comes out can be written again: no text holds half of a surrogate pair, no integer has more
digits than Python prints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opscope.errors import FormatError
from opscope.formats.bounded import read_bounded

SIZE_LIMIT = 4 << 30
DEPTH_LIMIT = 400
DIGITS = 40  # of an integer; the largest that any field of a dump holds has 20
_ESCAPE = re.compile(
    r"\\(?:[^u]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2}))",
    re.DOTALL,
)


def load_json(path: str | Path) -> Any:
    """The value a file holds; FormatError naming file and offset when it is no JSON, too large or
    too deep.
    """
    return parse_json(read_bounded(path, limit=SIZE_LIMIT, what="JSON"), path)


def load_json_or_note(path: Path, problems: list[str]) -> Any:
    """The value of a file that need not be there, else None; what is wrong with it is added to
    problems.
    """
    if not path.is_file():
        return None
    try:
        return load_json(path)
    except FormatError as error:
        problems.append(str(error))
        return None


def parse_json(data: bytes, path: str | Path) -> Any:
    """The value of these bytes. Nesting deeper than DEPTH_LIMIT is refused before Python's own
    stack would end.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(path, "is not UTF-8 text", offset=error.start) from None
    try:
        value = json_value(text)
    except RecursionError:
        raise FormatError(path, "JSON nested too deep") from None
    except ValueError as error:
        at = getattr(error, "pos", None)
        raise FormatError(path, f"not JSON: {getattr(error, 'msg', error)}", offset=at) from None
    if too_deep(value):
        raise FormatError(path, f"JSON nested deeper than {DEPTH_LIMIT}")
    return value


def json_value(text: str, *, table: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value of a JSON text: an escape of half a surrogate pair, which is no character, stays
    the six characters it was written with.

    table makes an object of its pairs. Raises ValueError and RecursionError as json.loads does.
    """
    if "\\ud" in text or "\\uD" in text:
        text = _ESCAPE.sub(lambda escape: f"\\\\{escape[1]}" if escape[1] else escape[0], text)
    return json.loads(text, parse_int=_integer, object_pairs_hook=table)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= DIGITS else float(digits)


def too_deep(value: Any) -> bool:
    """Whether containers nest deeper than DEPTH_LIMIT."""
    level = [value]
    for _ in range(DEPTH_LIMIT + 1):
        level = [
            item
            for part in level
            if isinstance(part, (dict, list))
            for item in (part.values() if isinstance(part, dict) else part)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return False
    return True
