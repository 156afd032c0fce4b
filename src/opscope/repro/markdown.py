# SPDX-License-Identifier: Apache-2.0
"""Markdown made of text that somebody else wrote: it can end no code span, break no table, open no
link.
"""

from __future__ import annotations

from collections.abc import Sequence


def code(text: object) -> str:
    """A code span whose text can neither end it nor break a table's row."""
    plain = printable(text)
    longest = max((len(run) for run in _backticks(plain)), default=0)
    fence = "`" * (longest + 1)
    padded = f" {plain} " if plain.startswith("`") or plain.endswith("`") or not plain else plain
    return f"{fence}{padded}{fence}"


def _backticks(text: str) -> list[str]:
    return [part for part in "".join(c if c == "`" else " " for c in text).split(" ") if part]


def escape(text: str) -> str:
    """Plain Markdown text without markup: every ASCII punctuation character escaped."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>()#+!&~" else c for c in printable(text))


def printable(text: object) -> str:
    """Text without control characters, at most 2000 long."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(text))[:2000]


def fence(lines: Sequence[str], language: str = "sh") -> str:
    """A fenced block, its fence longer than any in the lines."""
    longest = max((len(run) for line in lines for run in _backticks(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence + language, *lines, fence])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(
        [
            f"| {' | '.join(head)} |",
            f"|{'---|' * len(head)}",
            *(f"| {' | '.join(row)} |" for row in cells),
        ]
    )
