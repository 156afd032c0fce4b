# SPDX-License-Identifier: Apache-2.0
"""A settings file's JSON text: what is wrong with it in words a person can act on, and keys that
stand in it twice.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from opscope.errors import UsageError
from opscope.formats.bounded_json import json_value
from opscope.formats.settings.problem import Problem


def parse_settings(text: str) -> tuple[Any, list[Problem]]:
    """The document, and remarks on keys that one table has twice; UsageError, with line and column,
    for what is no JSON.
    """
    twice: list[Problem] = []

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        twice.extend(
            Problem("error", name, f"stands {count} times in one table; keep one")
            for name, count in counts.items()
            if count > 1
        )
        return dict(pairs)

    try:
        return json_value(text, table=table), twice
    except json.JSONDecodeError as error:
        raise UsageError(
            f"not JSON at line {error.lineno}, column {error.colno}: {_why(text, error)}"
        ) from error
    except RecursionError as error:
        raise UsageError("nested too deep to be a settings file") from error
    except ValueError as error:  # a number of more digits than Python reads
        raise UsageError(f"not JSON: {error}") from error


def _why(text: str, error: json.JSONDecodeError) -> str:
    """The parser's word, or what it means where a person made a usual mistake."""
    rest, before = text[error.pos :].lstrip(), text[: error.pos].rstrip()
    if not text.strip():
        return "the file is empty"
    if rest.startswith(("//", "/*", "#")):
        return "JSON has no comments"
    if rest.startswith(("}", "]")) and before.endswith(","):
        return "the comma before the closing bracket is one too many"
    if rest.startswith("'"):
        return "JSON has double quotes only"
    if re.match(r"(true|false|none)\b", rest, re.IGNORECASE) is not None:
        return "JSON writes true, false and null, in small letters"
    return (
        "the file ends before its last bracket"
        if not rest or error.msg.startswith("Unterminated")
        else error.msg
    )
