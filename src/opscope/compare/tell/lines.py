# SPDX-License-Identifier: Apache-2.0
"""The lines of a program in which some calls stand, and from which of several lines a helper
function was called: a norm that is written out once stands in one line, and is run from twenty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from opscope.compare.side.records import call_records
from opscope.questions.libraries import INSTALLED
from opscope.run.query import records

if TYPE_CHECKING:
    from opscope.compare.side.columns import Side
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

MOST = 10  # lines that are named
MOST_BETWEEN = 3  # lines between two that are named, where they are of one passage
MOST_SITES = 2
NOT_OWN = ("<", *INSTALLED, "/lib/python3")


def lines_of(side: Side, calls: Sequence[int]) -> list[str]:
    """The first lines in which calls stand, as FILE:LINE and FILE:FIRST-LAST, in the order of the
    calls' files; with the lines that the first of them was called from, where that tells it from
    others, and those between that stand close.
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
    _fill(lines_of_file, begun.source or "")
    return [span for file, lines in lines_of_file.items() for span in _spans(file, sorted(lines))]


def call_sites(run: Run, call: Call) -> tuple[str, ...]:
    """The program's own lines, innermost first, that tell this call from others at its line; none
    where that line is reached in one way.
    """
    if call.stack is None or call.source is None:
        return ()
    chains = set[tuple[str, ...]]()
    mine: tuple[str, ...] = ()
    for row in records(run, "stacks"):
        if row.process == call.process:
            chain = tuple(_outwards(row.frames, call.source))
            chains.add(chain)
            mine = chain if row.stack == call.stack else mine
    sites = list[str]()
    for depth in range(1, len(mine)):
        chains = {chain for chain in chains if chain[:depth] == mine[:depth]}
        if len({chain[: depth + 1] for chain in chains}) > 1:
            sites.append(mine[depth])
    return tuple(sites[:MOST_SITES])


def _outwards(frames: Sequence[str], source: str) -> Iterator[str]:
    """A line, if it stands in a stack, and the program's own lines that led to it."""
    inside = False
    for frame in frames:
        line = frame.rpartition(" in ")[0]
        inside |= line == source
        if inside and not any(mark in line for mark in NOT_OWN):
            yield line


def _fill(lines_of_file: dict[str, list[int]], begun: str) -> None:
    """Put in the lines between two that stand close, first those that are closest, of these those
    nearest to where it begins, as long as they are not too many: a view or a number that is
    computed there may be the fault as well.
    """
    left = MOST - sum(map(len, lines_of_file.values()))
    start_file, _, start = begun.rpartition(":")
    gaps = [
        (following - line - 1, file != start_file, abs(line - int(start or 0)), line, file)
        for file, lines in lines_of_file.items()
        for line, following in pairwise(sorted(lines))
    ]
    for between, _, _, line, file in sorted(gaps):
        if 0 < between <= min(MOST_BETWEEN, left):
            lines_of_file[file].extend(range(line + 1, line + 1 + between))
            left -= between


def _spans(file: str, lines: list[int]) -> list[str]:
    """Neighbouring lines as one span."""
    cuts = [at for at, (line, following) in enumerate(pairwise(lines), 1) if following - line > 1]
    parts = [lines[start:stop] for start, stop in pairwise([0, *cuts, len(lines)])]
    return [
        f"{file}:{part[0]}" if len(part) == 1 else f"{file}:{part[0]}-{part[-1]}" for part in parts
    ]
