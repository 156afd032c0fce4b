# SPDX-License-Identifier: Apache-2.0
"""The verdict of a run beside that of an earlier run of the same command: what is gone, what is
still there, what is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opscope.scan.summary import first_line

if TYPE_CHECKING:
    from opscope.run.finding import Document, Finding
    from opscope.run.protocol import Run


def beside(here: Document, there: Document, run: Run) -> dict[str, Any]:
    """Facts for a document's summary: the earlier run and its verdict, and findings of either as
    lines.

    Two findings are the same when kind, operator, phase, module and source line are, whatever their
    step.
    """
    mine, theirs = _by_fault(here), _by_fault(there)
    return {
        "run": run.info.path,
        "verdict": there.verdict,
        "steps": there.summary.get("steps"),
        "exit_codes": sorted(
            {process.exit_code for process in run.processes if process.exit_code is not None}
        ),
        "gone": [first_line(finding) for fault, finding in theirs.items() if fault not in mine],
        "still": [first_line(finding) for fault, finding in mine.items() if fault in theirs],
        "new": [first_line(finding) for fault, finding in mine.items() if fault not in theirs],
    }


def _by_fault(document: Document) -> dict[tuple[str | None, ...], Finding]:
    return {
        (each.kind, each.op, each.phase, each.module, each.source): each
        for each in document.findings
    }
