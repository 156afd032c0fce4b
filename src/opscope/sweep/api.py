# SPDX-License-Identifier: Apache-2.0
"""Sweeps an operator, or all that torch has samples of, over types, shapes, layouts and values,
against all witnesses.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from opscope.errors import FormatError, UsageError
from opscope.operators.catalogue import declared_rows
from opscope.repro.answering import AnsweringProcess, ending
from opscope.run.finding import Document, Finding
from opscope.sweep.tasks import Answer, Counts, Swept, Task

CONFIDENCE = {1: "suspected", 2: "proven"}
NAMED = 4  # operators that one which is never called is made of


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is swept: operators of a pattern (None all), types (none means all), where, and how long
    the samples of a name may take.
    """

    pattern: str | None = None
    dtypes: tuple[str, ...] = ()
    device: str = "cpu"
    timeout: float = 600.0


def sweep_names(
    names: Sequence[str], plan: Plan, progress: Callable[[str, int, int], None] = lambda *_: None
) -> Iterator[Answer]:
    """An answer for each name, made in a process of its own that is started again where a kernel
    ends it.
    """
    with AnsweringProcess([sys.executable, "-m", "opscope.sweep.worker"], os.environ) as process:
        for number, name in enumerate(names):
            progress("sweep", number, len(names))
            task = Task(
                name=name,
                pattern=plan.pattern,
                dtypes=plan.dtypes,
                device=plan.device,
                declared=declared_rows(),
            )
            yield answer_of(process, task, plan.timeout)


def answer_of(process: AnsweringProcess, task: Task, timeout: float) -> Answer:
    """The answer to a task; where the process ended in it, or took too long, that stands in its
    reason.
    """
    try:
        line = process.ask(msgspec.json.encode(task), timeout)
    except TimeoutError as error:
        return Answer(name=task.name, reason=f"the process that made its calls: {error}")
    if line:
        return msgspec.json.decode(line, type=Answer)
    status = ending(process.end(1.0))
    return Answer(name=task.name, reason=f"the process that made its calls ended with {status}")


def resumed_answers(
    path: Path,
    plan: Plan,
    names: Sequence[str],
    sweep: Callable[[Sequence[str]], Iterable[Answer]],
) -> Iterator[Answer]:
    """Answers of these names: those that the file holds, a line each, then those of sweep, which
    are added to it, so that a sweep that was ended goes on where it was.

    Raises UsageError for a file of another plan, and FormatError for one that is none.
    """
    known = {answer.name: answer for answer in _answers_in(path, plan)}
    yield from (known[name] for name in names if name in known)
    with path.open("ab") as file:
        if not file.tell():
            file.write(msgspec.json.encode(_plan_line(plan)) + b"\n")
        for answer in sweep([name for name in names if name not in known]):
            file.write(msgspec.json.encode(answer) + b"\n")
            file.flush()
            yield answer


def _plan_line(plan: Plan) -> dict[str, object]:
    declared = msgspec.to_builtins(declared_rows())
    return {
        "op": plan.pattern,
        "dtypes": list(plan.dtypes),
        "device": plan.device,
        **({"declared": declared} if declared else {}),
    }


def _answers_in(path: Path, plan: Plan) -> Iterator[Answer]:
    """Answers of a file, without a last line that was not finished; none where there is no file."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    if lines and not lines[-1].endswith(b"\n"):
        path.write_bytes(b"".join(lines[:-1]))
        lines.pop()
    try:
        if lines and msgspec.json.decode(lines[0]) != _plan_line(plan):
            raise UsageError(f"{path} holds answers to other options; name another file")
        for line in lines[1:]:
            yield msgspec.json.decode(line, type=Answer)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(path, f"no answers of check-op ({error}); name another file") from error


def document_of(answers: Iterable[Answer], plan: Plan, asked: str) -> Document:
    """Findings of what is wrong, and a table of what was examined; incomplete where no call was."""
    answers = list(answers)
    table = merged(count for answer in answers for count in answer.counts)
    broken = {answer.name: answer.reason for answer in answers if answer.reason}
    examined = sum(count.examined for count in table)
    findings = tuple(finding_of(swept) for answer in answers for swept in answer.wrong)
    warnings = [f"samples of {name}: {reason}" for name, reason in broken.items()]
    others = list(dict.fromkeys(other for answer in answers for other in answer.others))
    if plan.pattern and not table and others:
        warnings.append(
            f"torch made no call of {plan.pattern}: its samples ran {', '.join(others[:NAMED])}; "
            "sweep what it is made of"
        )
    summary = {
        "asked": asked,
        "device": plan.device,
        "calls": examined,
        "samples": len(answers),
        "broken": broken,
        "warnings": warnings,
        "table": [msgspec.to_builtins(count) for count in table],
    }
    verdict = "found" if findings else "clean"
    return Document(
        verb="check-op",
        verdict=verdict,
        complete=examined > 0,
        findings=findings,
        summary=summary,
    )


def merged(counts: Iterable[Counts]) -> list[Counts]:
    """One row for each operator and type, by name."""
    rows: dict[tuple[str, str], Counts] = {}
    for count in counts:
        row = rows.setdefault(
            (count.op, count.dtype), Counts(op=count.op, dtype=count.dtype, unjudged={})
        )
        row.examined += count.examined
        row.wrong += count.wrong
        for reason, number in count.unjudged.items():
            row.unjudged[reason] = row.unjudged.get(reason, 0) + number
    return [rows[key] for key in sorted(rows)]


def finding_of(swept: Swept) -> Finding:
    """A wrong call as a finding: the reason, its smallest evidence, and the tensors it was made
    with.
    """
    verdict = swept.verdict
    element = (
        f"element {list(verdict.worst)} of output {verdict.slot} is {verdict.got}, "
        f"{verdict.expected} expected"
        if verdict.worst is not None
        else ""
    )
    beyond = f"{verdict.elements} of {verdict.size} elements beyond; " if verdict.elements else ""
    return Finding(
        kind="replay-mismatch",
        op=swept.op,
        call=swept.sample,
        reasons=tuple(filter(None, (verdict.reason, beyond + element))),
        confidence=CONFIDENCE.get(verdict.witnesses, "likely"),
        evidence=(
            {
                "dtype": swept.dtype,
                "tensors": swept.tensors,
                "error": verdict.error,
                "tolerance": verdict.tolerance,
            },
        ),
    )
