# SPDX-License-Identifier: Apache-2.0
"""A line of code in its context, as the page shows it."""

from __future__ import annotations

from typing import Any

from opscope.report.source import lines_of, parse_place

AROUND = 6  # lines before and after


class Sources:
    """Files that a run names, each read once."""

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}

    def context(self, source: str | None) -> dict[str, Any] | None:
        """Lines around a place, the number of the first and of the one meant; None where they
        cannot be had.
        """
        file, number, lines = self._place(source or "")
        if not lines:
            return None
        first = max(1, number - AROUND)
        shown = lines[first - 1 : number + AROUND]
        return {
            "file": file,
            "line": number,
            "first": first,
            "lines": [text[:400] for text in shown],
        }

    def text(self, source: str) -> str | None:
        """The line alone, without its indentation."""
        _, number, lines = self._place(source)
        return (lines[number - 1].strip()[:400] or None) if lines else None

    def _place(self, source: str) -> tuple[str, int, list[str]]:
        """File, line and all lines of the file; none where the line is not there."""
        file, number = parse_place(source) or ("", 0)
        if number and file not in self._files:
            self._files[file] = lines_of(file) or []
        lines = self._files.get(file, [])
        return file, number, lines if 0 < number <= len(lines) else []
