# SPDX-License-Identifier: Apache-2.0
"""Which parts of a selection match nothing in a run: most often a name or a number that was
mistyped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from opscope.run.query import rows_of
from opscope.run.selection import Pattern, near_names, op_spellings

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.run.selection import Selection


def unmatched(run: Run, selection: Selection | None) -> tuple[str, ...]:
    """One line for each part of --ops and --skip that matches no call of the run, with the names
    that look like it, and for --steps and --ranks of which it has none.

    Raises FormatError for a table that cannot be read. Nothing is read when none was given.
    """
    if selection is None:
        return ()
    places = tuple(_missed_places(run, selection))
    given = [("--ops", selection.ops), ("--skip", selection.skip)]
    patterns = [(option, pattern) for option, pattern in given if pattern]
    if not patterns:
        return places
    rows = list(dict.fromkeys(rows_of(run, "calls", ("op", "name", "module"))))
    lines = (line for option, pattern in patterns for line in _lines(option, pattern, rows))
    return (*places, *lines)


def _missed_places(run: Run, selection: Selection) -> Iterator[str]:
    for column, given, wanted in (
        ("step", selection.steps, selection.wants_step),
        ("rank", selection.ranks, selection.wants_rank),
    ):
        if given is None:
            continue
        there = sorted({place for (place,) in rows_of(run, "calls", (column,))})
        if there and not any(map(wanted, there)):
            many = (
                f"{column}s {there[0]} to {there[-1]}" if len(there) > 1 else f"{column} {there[0]}"
            )
            yield f"--{column}s matches nothing: the run has {many}"


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
