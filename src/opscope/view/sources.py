# SPDX-License-Identifier: Apache-2.0
"""A line of code in its context, as the page shows it."""

from __future__ import annotations

from typing import Any

from opscope.report.source import lines_of, parse_place

AROUND = 6  # lines before and after


class Sources:
    """Files that a run names, each read once."""

    def __init__(self) -> None:
        self._files: dict[str, list[str] | None] = {}

    def context(self, source: str | None) -> dict[str, Any] | None:
        """Lines around a place, the number of the first and of the one meant; None where they
        cannot be had.
        """
        file_and_line = parse_place(source or "")
        lines = None if file_and_line is None else self._lines(file_and_line[0])
        if file_and_line is None or lines is None or not 0 < file_and_line[1] <= len(lines):
            return None
        first = max(1, file_and_line[1] - AROUND)
        shown = lines[first - 1 : file_and_line[1] + AROUND]
        return {
            "file": file_and_line[0],
            "line": file_and_line[1],
            "first": first,
            "lines": [text[:400] for text in shown],
        }

    def text(self, source: str) -> str | None:
        """The line alone, without its indentation."""
        file_and_line = parse_place(source)
        lines = None if file_and_line is None else self._lines(file_and_line[0])
        if file_and_line is None or lines is None or not 0 < file_and_line[1] <= len(lines):
            return None
        return lines[file_and_line[1] - 1].strip()[:400] or None

    def _lines(self, path: str) -> list[str] | None:
        if path not in self._files:
            self._files[path] = lines_of(path)
        return self._files[path]
