# SPDX-License-Identifier: Apache-2.0
"""Calls in which a process died."""

from __future__ import annotations

import signal
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.analysis.findings import Accusation
from opscope.analysis.tables import Tables

if TYPE_CHECKING:
    from opscope.run.schema import Process

UNFINISHED = "unfinished"
_ON_PURPOSE = ("SystemExit", "KeyboardInterrupt", "GeneratorExit")
_STOPPED_BY_SOMEONE = frozenset({int(signal.SIGINT), int(signal.SIGTERM)})


class _Failed(msgspec.Struct, frozen=True):
    process: int
    index: int
    parent: int | None
    error: str


def crash_accusations(tables: Tables) -> list[Accusation]:
    """One for each process that died in a call: unfinished calls, or an exception that the program did not survive.

    An exception that the program caught is none: only one in the last call of a process that ended with a failure counts.
    """
    if tables.run.processes and all(process.exit_code == 0 for process in tables.run.processes):
        return []
    rows = tables.rows('SELECT process, "index", parent, error FROM calls WHERE error IS NOT NULL')
    if not rows:
        return []
    ends = tables.rows('SELECT process, max("index"), arg_max(parent, "index") FROM calls GROUP BY process')
    last = {process: (index, parent) for process, index, parent in ends}
    failed: dict[int, list[_Failed]] = defaultdict(list)
    for row in rows:
        failed[row[0]].append(_Failed(*row))
    processes = {process.process: process for process in tables.run.processes}
    found = (_crash(calls, last[number], processes.get(number)) for number, calls in failed.items())
    return [accusation for accusation in found if accusation is not None]


def _crash(calls: list[_Failed], last: tuple[int, int | None], process: Process | None) -> Accusation | None:
    if process is not None and (process.exit_code == 0 or process.signal in _STOPPED_BY_SOMEONE):
        return None
    open_calls = [call for call in calls if call.error == UNFINISHED]
    if open_calls:
        innermost = max(open_calls, key=lambda call: call.index)
        words = f"the process died in this call{_how(process)}"
        return Accusation(
            process=innermost.process, index=innermost.index, kind="crash", reasons=(words,), confidence="likely",
            evidence=_ending(process), order=0, judged=False,
        )  # fmt: skip
    if process is None or not (process.exit_code or process.signal):
        return None
    fatal = [call for call in calls if call.index in last and not call.error.startswith(_ON_PURPOSE)]
    if not fatal:
        return None
    innermost = max(fatal, key=lambda call: call.index)
    return Accusation(
        process=innermost.process, index=innermost.index, kind="crash", reasons=(_first_line(innermost.error),),
        evidence=_ending(process), order=0, judged=False,
    )  # fmt: skip


def _ending(process: Process | None) -> dict[str, Any]:
    return {} if process is None else {"exit_code": process.exit_code, "signal": process.signal}


def _how(process: Process | None) -> str:
    if process is None:
        return ""
    if process.signal:
        return f" of signal {process.signal}"
    return f" with exit code {process.exit_code}" if process.exit_code else ""


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:500]
