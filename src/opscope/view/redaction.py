# SPDX-License-Identifier: Apache-2.0
"""What a page leaves out for whom it is given to: code, paths, or values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

KINDS = ("sources", "paths", "values")
_SOURCES = {"code"}
_VALUES = {
    "args",
    "stats",
    "series",
    "picture",
    "reasons",
    "digest",
    "error",
    "magnitude",
    "zeros",
    "expected",
    "got",
    "sample",
    "text",
    "warnings",
    "own",
    "scale",
    "distance",
}
_LINE_RANGE = re.compile(r" \|?x\|?∈\[[^\]]*\]")
_FOLDERS = re.compile(r"(?<![\w:/.<])(?:/|~/|[A-Za-z]:[\\/])(?:[^/\\\n'\":;,]+[/\\])+")


def redacted(document: Any, kinds: frozenset[str]) -> Any:
    """The document without what these kinds name; everything else is as it was.

    sources: lines of code; paths: the folders of every path, in any text; values: numbers of
    tensors (statistics, arguments, reasons that tell them, pictures), not their types and shapes
    nor the counts of what is not finite.
    """
    dropped = (_SOURCES if "sources" in kinds else set()) | (
        _VALUES if "values" in kinds else set()
    )
    changes: list[Callable[[str], str]] = []
    if "values" in kinds:
        changes.append(lambda text: _LINE_RANGE.sub("", text))
    if "paths" in kinds:
        changes.append(lambda text: _FOLDERS.sub("", text))
    return _without(document, dropped, changes) if kinds else document


def _without(value: Any, dropped: set[str], changes: list[Callable[[str], str]]) -> Any:
    if isinstance(value, dict):
        return dict(_fields(value, dropped, changes))
    if isinstance(value, list | tuple):
        return [_without(item, dropped, changes) for item in value]
    if isinstance(value, str):
        for change in changes:
            value = change(value)
    return value


def _fields(
    value: dict[Any, Any], dropped: set[str], changes: list[Callable[[str], str]]
) -> Iterator[tuple[Any, Any]]:
    for name, item in value.items():
        if name in dropped:
            # An empty one of its kind, so that whoever draws it needs to know nothing of this.
            yield name, type(item)() if isinstance(item, dict | list | tuple | str) else None
        else:
            yield name, _without(item, dropped, changes)
