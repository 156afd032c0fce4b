# SPDX-License-Identifier: Apache-2.0
"""Which parts of a PATTERN match nothing in a run: most often a name that was mistyped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.run.query import sql
from opscope.run.selection import Pattern, near_names, op_spellings

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.run.selection import Selection


def unmatched(run: Run, selection: Selection | None) -> tuple[str, ...]:
    """One line for each part of --ops and --skip that matches no call of the run, with the names
    that look like it.

    Raises FormatError for a table that cannot be read. Nothing is read when neither was given.
    """
    given = [] if selection is None else [("--ops", selection.ops), ("--skip", selection.skip)]
    patterns = [(option, pattern) for option, pattern in given if pattern]
    if not patterns:
        return ()
    rows = [
        (row["op"], row["name"], row["module"])
        for row in sql(run, "SELECT DISTINCT op, name, module FROM calls")
    ]
    return tuple(line for option, pattern in patterns for line in _lines(option, pattern, rows))


def _lines(
    option: str, pattern: Pattern, rows: list[tuple[str, str | None, str | None]]
) -> list[str]:
    left = list(pattern.parts)
    for row in rows:
        if not left:
            return []
        matching = pattern.matching_parts(*row)
        left = [part for part in left if part not in matching]
    names = {op_spellings(op)[-1] for op, _, _ in rows} | {
        module for _, _, module in rows if module
    }
    lines = []
    for part in left:
        near = near_names(part, sorted(names))
        lines.append(
            f"{option} {part!r} matches nothing in this run"
            + (f"; near names: {', '.join(near)}" if near else "")
        )
    return lines
