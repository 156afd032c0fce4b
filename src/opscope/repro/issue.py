# SPDX-License-Identifier: Apache-2.0
"""ISSUE.md of a repro folder: what a maintainer wants to read, ready to be pasted, with what
executing the folder gave.
"""

from __future__ import annotations

import json
from pathlib import Path

from opscope.repro.case import Case, Failure
from opscope.repro.failure import failure_words
from opscope.repro.forms import form_named
from opscope.repro.markdown import code, escape, fence, table
from opscope.repro.readme import environment_rows, tensor_line
from opscope.repro.runner import Outcome

ISSUE = "ISSUE.md"
EXPECTED = {
    "nonfinite": "Finite values, or those that exact arithmetic gives.",
    "memory": "Arguments and results lie and stay as the operator's schema says.",
    "mismatch": "The result of float64 arithmetic, within rounding.",
    "exception": "No exception.",
    "crash": "The process survives the call.",
    "hang": "The call returns.",
    "integer-overflow": "Results that fit the output's type, or a wider type.",
    "saturation": "Results that fit the output's type, or infinity.",
}
WORDS = {
    "reproduced": "reproduced",
    "flaky": "flaky",
    "not-reproduced": "not reproduced here",
    "cannot-try": "could not be tried here",
    "timeout": "no verdict",
    "died": "no verdict",
}


def write_issue(directory: Path, case: Case, outcome: Outcome) -> Path:
    """Write ISSUE.md beside the script, and return its path."""
    path = directory / ISSUE
    path.write_text(issue_text(case, outcome), encoding="utf-8")
    return path


def issue_text(case: Case, outcome: Outcome) -> str:
    """Markdown of one issue: environment, case, expected, actual, line. Text of a run appears only
    in code spans and fences.
    """
    failure = shown_failure(case, outcome)
    counted = f" {outcome.shown}/{outcome.tried}" if outcome.tried > 1 else ""
    device = code(outcome.device or case.run_on or case.device)
    inputs = [
        [code(row.slot), code(tensor_line(row.dtype, row.shape, row.stats)), code(list(row.stride))]
        for row in case.tensors
    ]
    sections = [
        f"# {code(case.op)}: {escape(failure_words(failure))}",
        f"Executed by opscope: **{WORDS.get(outcome.status, 'no verdict')}{counted}** on {device}.",
        "## The smallest case",
        fence(form_named(case.form).code(case), "python"),
        table(["slot", "tensor", "strides"], inputs),
        "The folder beside this file holds the values and a script that stands alone:",
        fence(["python repro.py", *(f"# loads {json.dumps(name)}" for name in case.imports)]),
        "## Expected",
        EXPECTED.get(failure.kind, "What other kernels give for the same inputs."),
        "## Actual",
        escape(outcome.reason) if outcome.reason else escape(failure_words(failure)),
        fence(list(outcome.lines), "text"),
        *(["## Where it was met", _line(case)] if case.source or case.module else []),
        *(
            ["## Beware", "\n".join(f"- {escape(warning)}" for warning in case.warnings)]
            if case.warnings
            else []
        ),
        "## Environment",
        table(["", ""], environment_rows(case)),
    ]
    return "\n\n".join(sections) + "\n"


def shown_failure(case: Case, outcome: Outcome) -> Failure:
    """The failure that was recorded, or the one that executing a call showed in which nothing had
    been told.
    """
    return (
        Failure(kind="mismatch") if case.failure.kind == "none" and outcome.shown else case.failure
    )


def _line(case: Case) -> str:
    where = [
        f"line {code(case.source)}" if case.source else "",
        f"module {code(case.module)}" if case.module else "",
    ]
    return (
        f"{', '.join(filter(None, where))}, {code(case.phase)}, step {case.step}, rank {case.rank}."
    )
