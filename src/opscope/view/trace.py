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

import numpy as np

from opscope.run.printable import printable
from opscope.run.protocol import Run
from opscope.view.all_calls import UNKNOWN, AllCalls

_NUMBERS = ("process", "rank", "thread", "step", "index")
_TEXTS = ("level", "phase", "op", "name", "source")
_NOBODY = -1  # the parent of a call that nothing encloses
_TOGETHER = 4096  # rows that are taken out of the columns at once
_OPENED = "opscope: a slice is as long as the calls inside it; runs hold no times"


def trace(run: Run, *, redact: frozenset[str] = frozenset()) -> Iterator[str]:
    """The trace's text in parts, in the order of the calls; what redact names is left out of it."""
    slices = _Slices()
    yield "[\n" + _event("M", "process_labels", 0, 0, 0, labels=_OPENED)
    for row in _rows(AllCalls(run)):
        yield from slices.entered(row, redact)
    yield from slices.closed()
    yield "\n]\n"


def _rows(calls: AllCalls) -> Iterator[dict[str, Any]]:
    """The calls by process and index: their columns, how large their results are, None where that
    is not known, and how many elements of them are not finite.
    """
    order = np.argsort(calls.keys, kind="stable")
    columns = {name: calls.numbers(name) for name in _NUMBERS}
    columns |= {"parent": calls.numbers("parent", _NOBODY), "largest": calls.results.largest}
    columns["lost"] = calls.results.lost
    for start in range(0, len(order), _TOGETHER):
        rows = order[start : start + _TOGETHER]
        cells = [column[rows].tolist() for column in columns.values()]
        texts = [calls.texts(name).at(rows) for name in _TEXTS]
        for row in zip(*cells, *texts, strict=True):
            yield dict(zip((*columns, *_TEXTS), row, strict=True))


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
        about = {"call": row["name"], "step": row["step"], "phase": row["phase"]}
        if row["source"] and not redact & {"sources", "paths"}:
            about["source"] = row["source"]
        name = row["op"] if row["level"] != "module" else row["name"]
        yield _event("B", name, now, process, thread, **about)
        if row["level"] != "module" and "values" not in redact:
            if row["largest"] != UNKNOWN:
                yield _event("C", "largest magnitude", now, process, 0, value=row["largest"])
            yield _event("C", "not finite", now, process, 0, elements=row["lost"])

    def closed(self) -> Iterator[str]:
        """The ends of all that is open."""
        for (process, thread), stack in self._open.items():
            for _ in stack:
                yield _event("E", "", self._now[process] + 1, process, thread)


def _event(phase: str, name: str, now: int, process: int, thread: int, /, **about: Any) -> str:
    event = {"ph": phase, "ts": now, "pid": process, "tid": thread}
    if name:
        event["name"] = printable(name)
    if about:
        event["args"] = {
            key: printable(value) if isinstance(value, str) else value
            for key, value in about.items()
        }
    separator = "" if phase == "M" and now == 0 and name == "process_labels" else ",\n"
    return separator + json.dumps(event, ensure_ascii=False, allow_nan=False)
