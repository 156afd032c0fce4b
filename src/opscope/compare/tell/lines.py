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
from opscope.run.printable import spans
from opscope.run.query import records

if TYPE_CHECKING:
    from opscope.compare.side.columns import Side
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

MOST = 12  # lines that are named
MOST_BETWEEN = 3  # lines between two that are named, where they are of one passage
MOST_SITES = 2
NOT_OWN = ("<", *INSTALLED, "/lib/python3")
Line = tuple[str, int]


def lines_of(side: Side, calls: Sequence[int]) -> list[str]:
    """The first lines in which calls stand, as FILE:LINE and FILE:FIRST-LAST, in the order of the
    calls' files; with the line that the first of them was called from, where what it is given may
    be the fault, lines that tell it from others, and some beside them; twelve at most.
    """
    known = call_records(side, calls)
    begun = known[calls[0]]
    sources = list(
        dict.fromkeys(
            [begun.source, *call_sites(side.run, begun), *(known[call].source for call in calls)]
        )
    )
    named = [
        (file, int(line))
        for file, _, line in (source.rpartition(":") for source in sources if source)
        if line.isdigit()
    ][:MOST]
    shown = {named[0]} if named else set[Line]()
    for lines in _further(named):
        if len(shown | lines) <= MOST:
            shown |= lines
    files = dict.fromkeys(file for file, _ in named)
    return [
        f"{file}:{span}"
        for file in files
        for span in spans(line for of, line in shown if of == file)
    ]


def _further(named: Sequence[Line]) -> Iterator[set[Line]]:
    """What is named behind the first line. Above that may stand what is missing, and the fault
    where no call stands: between two lines that are close, first the closest, of these the nearest
    to where it begins: a number that is computed, a view; last behind each line, where what is made
    of its result may be missing.
    """
    yield from (_beside(line, -1) for line in named[:1])
    yield from ({line} for line in named[1:])
    gaps = [
        (following - line, file != named[0][0], abs(line - named[0][1]), file, line)
        for file in {file for file, _ in named}
        for line, following in pairwise(sorted(line for of, line in named if of == file))
    ]
    for apart, _, _, file, line in sorted(gaps):
        if 1 < apart <= MOST_BETWEEN + 1:
            yield {(file, between) for between in range(line + 1, line + apart)}
    yield from (_beside(line, 1) for line in named)


def _beside(line: Line, step: int) -> set[Line]:
    """The line so many further on, if there is one."""
    file, number = line
    return {(file, number + step)} if number + step > 0 else set()


def call_sites(run: Run, call: Call) -> tuple[str, ...]:
    """The program's own lines, innermost first, from which the function of this call is called, and
    that tell it from others at its line.
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
    return tuple(dict.fromkeys([*mine[1:2], *sites[:MOST_SITES]]))


def _outwards(frames: Sequence[str], source: str) -> Iterator[str]:
    """A line, if it stands in a stack, and the program's own lines that led to it."""
    inside = False
    for frame in frames:
        line = frame.rpartition(" in ")[0]
        inside |= line == source
        if inside and not any(mark in line for mark in NOT_OWN):
            yield line
