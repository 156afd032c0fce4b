# SPDX-License-Identifier: Apache-2.0
"""A run as a trace that Perfetto and Chrome open: modules and operators as nested slices, and how
large results are as counters.

A run holds the order of calls and no times, so a slice is as long as the calls inside it: one
microsecond of the trace is one call. The format: Trace Event Format, JSON array form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from opscope.run.printable import printable
from opscope.run.protocol import Run
from opscope.run.query import sql

_CALLS = """
SELECT c.process, c.rank, coalesce(c.thread, 0) AS thread, c.step, c."index", c.parent, c.level,
    c.phase, c.op, c.name, c.source,
    max(greatest(abs(t.min), abs(t.max))) AS largest,
    coalesce(sum(t.nan + t.pos_inf + t.neg_inf), 0)::BIGINT AS lost
FROM calls c LEFT JOIN tensors t
    ON t.process = c.process AND t."index" = c."index" AND t.io = 'output'
GROUP BY ALL ORDER BY c.process, c."index"
"""
_OPENED = "opscope: a slice is as long as the calls inside it; runs hold no times"


def trace(run: Run, *, redact: frozenset[str] = frozenset()) -> Iterator[str]:
    """The trace's text in parts, in the order of the calls; what redact names is left out of it."""
    slices = _Slices()
    yield "[\n" + _event("M", "process_labels", 0, 0, 0, labels=_OPENED)
    for row in sql(run, _CALLS):
        yield from slices.entered(row, redact)
    yield from slices.closed()
    yield "\n]\n"


class _Slices:
    """The slices that are open, by process and thread: their calls, the innermost last."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], list[int]] = {}
        self._named: set[int] = set()
        self._now: dict[int, int] = {}

    def entered(self, row: dict[str, Any], redact: frozenset[str]) -> Iterator[str]:
        """What the call of a row ends, begins and counts."""
        process, thread = row["process"], row["thread"]
        if process not in self._named:
            self._named.add(process)
            yield _event("M", "process_name", 0, process, 0, name=f"rank {row['rank']}")
        now = self._now[process] = self._now.get(process, -1) + 1
        stack = self._open.setdefault((process, thread), [])
        while stack and stack[-1] != row["parent"]:
            stack.pop()
            yield _event("E", "", now, process, thread)
        stack.append(row["index"])
        told = {"call": row["name"], "step": row["step"], "phase": row["phase"]}
        if row["source"] and not redact & {"sources", "paths"}:
            told["source"] = row["source"]
        name = row["op"] if row["level"] != "module" else row["name"]
        yield _event("B", name, now, process, thread, **told)
        if row["level"] != "module" and "values" not in redact:
            if row["largest"] is not None:
                yield _event("C", "largest magnitude", now, process, 0, value=row["largest"])
            yield _event("C", "not finite", now, process, 0, elements=row["lost"])

    def closed(self) -> Iterator[str]:
        """The ends of all that is open."""
        for (process, thread), stack in self._open.items():
            for _ in stack:
                yield _event("E", "", self._now[process] + 1, process, thread)


def _event(phase: str, name: str, now: int, process: int, thread: int, /, **told: Any) -> str:
    event = {"ph": phase, "ts": now, "pid": process, "tid": thread}
    if name:
        event["name"] = printable(name)
    if told:
        event["args"] = {
            key: printable(value) if isinstance(value, str) else value
            for key, value in told.items()
        }
    separator = "" if phase == "M" and now == 0 and name == "process_labels" else ",\n"
    return separator + json.dumps(event, ensure_ascii=False, allow_nan=False)
