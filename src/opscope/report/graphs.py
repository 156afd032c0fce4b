# SPDX-License-Identifier: Apache-2.0
"""Graphs that torch.compile made in a run: what they are, how often they ran, why there are so
many.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from opscope.operators.spelling import COMPILED
from opscope.report.console import line
from opscope.run.query import rows_where

if TYPE_CHECKING:
    from rich.text import Text

    from opscope.run.protocol import Run
    from opscope.run.schema import Process


def graph_rows(run: Run) -> list[dict[str, Any]]:
    """One record for each graph of each process, in the order of compilation.

    process, rank, graph; operators, backend, frame, reason (why the frame was compiled again),
    ended and broken (why the graph ends, and whether it breaks there), seconds of compilation;
    executions by phase, repeated (how often it was executed again), not_repeated (why not).
    """
    times: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    executions = rows_where(
        run,
        "calls",
        ("process", "op", "phase", "again", "level"),
        lambda batch: batch["level"] == "graph",
    )
    for number, op, phase, again, _ in executions:
        times[number, op.removeprefix(COMPILED)][phase if again is None else "repeated"] += 1
    rows = []
    for process in run.processes:
        refused = _table(process, "not executed again")
        known = {**_table(process, "graphs"), **_table(process, "packages")}
        names = {**known, **{name: {} for at, name in times if at == process.process}}
        for name in names:
            facts = known.get(name)
            counted = times[process.process, name]
            rows.append(
                {
                    "process": process.process,
                    "rank": process.rank,
                    "graph": name,
                    **(facts if isinstance(facts, dict) else {}),
                    "executions": {k: n for k, n in counted.items() if k != "repeated"},
                    "repeated": counted["repeated"],
                    "not_repeated": refused.get(name),
                }
            )
    return rows


def _table(process: Process, kind: str) -> dict[str, Any]:
    """What process.json tells of this kind, whoever wrote it."""
    table = process.torch.get(kind)
    return table if isinstance(table, dict) else {}


def graph_lines(rows: list[dict[str, Any]]) -> Iterator[Text]:
    """The records as lines for a terminal."""
    for row in rows:
        ran = ", ".join(f"{times} {phase}" for phase, times in row["executions"].items())
        yield line(
            (f"{row['graph']}", "bold"),
            (f"  {row.get('operators', '?')} operators, {row.get('backend', '?')}", ""),
            (f"  {row.get('frame', '')}", "dim"),
        )
        yield line((f"  executed: {ran or 'never'}; compiled in {row.get('seconds', '?')} s", ""))
        if row.get("reason"):
            yield line((f"  compiled again: {row['reason']}", ""))
        if row.get("broken"):
            yield line((f"  breaks: {row.get('ended')}", ""))
        if row["repeated"]:
            yield line((f"  executed again operator by operator: {row['repeated']} times", ""))
        if row["not_repeated"]:
            yield line((f"  not executed again: {row['not_repeated']}", ""))
