# SPDX-License-Identifier: Apache-2.0
"""From what a user types to calls of a run: a CALL, or a line of code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from opscope.errors import UsageError

if TYPE_CHECKING:
    from opscope.arrays import Ints
    from opscope.run.names import Resolved
    from opscope.run.protocol import Run
    from opscope.run.schema import Call
    from opscope.run.selection import Selection

MAX_LINES_NAMED = 12
_NO_STACK = -1
_TOGETHER = 1 << 15  # calls that are read at once: less than a batch costs as much as a whole one


def chosen_call(run: Run, text: str) -> Resolved:
    """The call that a CALL means; one without a step means the first finding's step, else the first
    occurrence.
    """
    from opscope.run.names import parse_call_name, resolve

    wanted = parse_call_name(text)
    if wanted.step is not None or wanted.index is not None:
        return resolve(run, text)
    resolved = resolve(run, text)
    if resolved.note is None:
        return resolved
    from opscope.scan.api import scan

    findings = scan(run).findings
    return resolve(run, text, step=findings[0].step) if findings else resolved


def first_found(run: Run) -> Resolved:
    """The call of the first finding that has one; UsageError where nothing was found."""
    from opscope.run.names import Resolved, resolve
    from opscope.scan.api import scan

    finding_of_call = next((finding for finding in scan(run).findings if finding.call), None)
    if finding_of_call is None:
        raise UsageError("which call? nothing was found in this run; opscope show lists its calls")
    return Resolved(
        resolve(
            run, f"r{finding_of_call.rank}/s{finding_of_call.step}/{finding_of_call.call}"
        ).call,
        "the call of the first finding",
    )


def calls_of_line(run: Run, text: str, selection: Selection) -> Iterator[Call]:
    """Calls that FILE:LINE ran, by any frame of their stack or by their source; UsageError when
    there is none.

    FILE is a path or the last parts of one. The backward calls of a line have it as their source
    where their own stack holds nothing but the engine.
    """
    import numpy as np

    from opscope.report.source import names_place, parse_place
    from opscope.run.keys import keys_at, keys_of
    from opscope.run.query import rows_of
    from opscope.view.all_calls import AllCalls

    line = parse_place(text)
    if line is None:
        raise UsageError(f"--source {text!r}: write FILE:LINE, train.py:41")
    calls = AllCalls(run)
    sources = calls.texts("source")
    meant = sources.which(lambda source: source is not None and names_place(source, line))
    stacks = keys_at(
        (process, stack)
        for process, stack, frames in rows_of(run, "stacks", ("process", "stack", "frames"))
        if any(names_place(frame, line) for frame in frames)
    )
    if not len(stacks) and not meant.any():
        raise UsageError(_no_such_line(text, line, [each for each in sources.words if each]))
    numbers = keys_of(calls.numbers("process"), calls.numbers("stack", _NO_STACK))
    chosen = calls.keys[meant | np.isin(numbers, stacks)]
    for call in _records(run, chosen):
        if selection.wants_call(call):
            yield call


def _records(run: Run, keys: Ints) -> Iterator[Call]:
    """Calls by their numbers in this order, a few at a time."""
    import numpy as np

    from opscope.run.keys import key
    from opscope.run.query import records_of

    for start in range(0, len(keys), _TOGETHER):
        part = keys[start : start + _TOGETHER]
        known = {
            key(call.process, call.index): call
            for call in records_of(run, "calls", np.unique(part))
        }
        yield from (known[number] for number in part.tolist())


def _no_such_line(text: str, line_asked: tuple[str, int], sources: list[str]) -> str:
    from opscope.report.source import names_place, parse_place

    places = (parse_place(source) for source in sources)
    lines = sorted(
        {
            line_of_file[1]
            for line_of_file in places
            if line_of_file is not None and names_place(f"{line_of_file[0]}:0", (line_asked[0], 0))
        }
    )
    if not lines:
        return f"--source {text}: no call of this run came from a file of that name"
    shown = ", ".join(
        map(str, sorted(lines, key=lambda line: abs(line - line_asked[1]))[:MAX_LINES_NAMED])
    )
    return f"--source {text}: no call came from that line; nearest lines that ran one: {shown}"
