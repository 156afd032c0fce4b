# SPDX-License-Identifier: Apache-2.0
"""The lines of a program in which some calls stand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from opscope.compare.side.records import call_records
from opscope.questions.call_sites import call_sites

if TYPE_CHECKING:
    from opscope.compare.side.columns import Side

MOST = 10  # lines that are named


def lines_of(side: Side, calls: Sequence[int]) -> list[str]:
    """The first lines in which calls stand, as FILE:LINE and FILE:FIRST-LAST, in the order of the
    calls' files; with the lines that the first of them was called from, where that tells it from
    others.
    """
    known = call_records(side, calls)
    begun = known[calls[0]]
    sources = list(
        dict.fromkeys(
            [begun.source, *call_sites(side.run, begun), *(known[call].source for call in calls)]
        )
    )
    lines_of_file: dict[str, list[int]] = {}
    for source in [named for named in sources if named][:MOST]:
        file, _, line = source.rpartition(":")
        if line.isdigit():
            lines_of_file.setdefault(file, []).append(int(line))
    return [span for file, lines in lines_of_file.items() for span in _spans(file, sorted(lines))]


def _spans(file: str, lines: list[int]) -> list[str]:
    """Neighbouring lines as one span."""
    cuts = [at for at, (line, following) in enumerate(pairwise(lines), 1) if following - line > 1]
    parts = [lines[start:stop] for start, stop in pairwise([0, *cuts, len(lines)])]
    return [
        f"{file}:{part[0]}" if len(part) == 1 else f"{file}:{part[0]}-{part[-1]}" for part in parts
    ]
