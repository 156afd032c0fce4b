# SPDX-License-Identifier: Apache-2.0
"""From which of several lines a helper function was called: a norm that is written out once stands
in one line, and is run from twenty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.questions.libraries import INSTALLED
from opscope.run.query import records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opscope.run.protocol import Run
    from opscope.run.schema import Call

MOST_SITES = 2
NOT_OWN = ("<", *INSTALLED, "/lib/python3")


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
