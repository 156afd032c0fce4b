# SPDX-License-Identifier: Apache-2.0
"""What a scan says beside its findings: counts of a run, verdicts that were reached while it ran, a
finding in one line, and what is gone, still there or new beside an earlier run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.questions.compiled_nodes import (
    DEVIATES,
    MISMATCH,
    last_of,
    node_words,
    nodes_of,
    sample_of,
)
from opscope.questions.findings import Accusation
from opscope.run.keys import keys_of
from opscope.run.query import columns, filled, records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from opscope.arrays import Ints
    from opscope.run.finding import Document, Finding
    from opscope.run.protocol import Run

NOTICED = 1.0  # seconds that a program waits for the disk before it is said


class Counts(msgspec.Struct, frozen=True):
    """What table calls says in numbers.

    sizes: how often a step of a process had so many calls, of all levels; first_steps: by process;
    spans: first and last index of each (process, rank, step); status: keys of the calls that have a
    status bit.
    """

    sizes: dict[int, int]
    ranks: list[int]
    first_steps: dict[int, int]
    spans: dict[tuple[int, int, int], tuple[int, int]]
    status: list[Ints]


def counts(run: Run) -> Counts:
    """Counted from the numeric columns of table calls alone."""
    sizes: dict[tuple[int, int, int], int] = {}
    spans: dict[tuple[int, int, int], tuple[int, int]] = {}
    status: list[Ints] = []
    for batch in columns(run, "calls", ("process", "rank", "step", "index", "status")):
        overflowed = filled(batch["status"]) != 0
        if overflowed.any():
            status.append(keys_of(batch["process"][overflowed], batch["index"][overflowed]))
        for step_of_rank, indices in _steps_of(
            batch["process"], batch["rank"], batch["step"], batch["index"]
        ):
            low, high = int(indices.min()), int(indices.max())
            known = spans.get(step_of_rank, (low, high))
            spans[step_of_rank] = (min(low, known[0]), max(high, known[1]))
            sizes[step_of_rank] = sizes.get(step_of_rank, 0) + len(indices)
    first: dict[int, int] = {}
    for process, _, step in sizes:
        first[process] = min(step, first.get(process, step))
    return Counts(
        sizes=dict(Counter(sizes.values())),
        ranks=sorted({rank for _, rank, _ in sizes}),
        first_steps=first,
        spans=spans,
        status=status,
    )


def middle(sizes: Mapping[int, int]) -> int:
    """The median of sizes, each as often as it came; 0 where none did."""
    if not sizes:
        return 0
    ordered = sorted(sizes)
    return int(np.median(np.repeat(ordered, [sizes[size] for size in ordered])))


def ended_steps(run: Run, recorded: set[int]) -> int:
    """How many recorded steps have ended; calls after the last one (a loss that is printed) begin
    none of their own.
    """
    ended = max(
        (process.steps for process in run.processes if process.steps is not None), default=None
    )
    return len({step for step in recorded if ended is None or step < ended} or recorded)


def _steps_of(
    process: NDArray[np.int32],
    rank: NDArray[np.int32],
    step: NDArray[np.int32],
    index: Ints,
) -> list[tuple[tuple[int, int, int], Ints]]:
    """Indices of a batch by (process, rank, step), a part for each stretch of rows of one; counts()
    adds parts up.
    """
    if not len(index):
        return []
    places = [np.asarray(column) for column in (process, rank, step)]
    changed = np.zeros(len(index) - 1, dtype=np.bool_)
    for column in places:
        changed |= column[1:] != column[:-1]
    starts = np.r_[0, np.flatnonzero(changed) + 1]
    parts = np.split(np.asarray(index), starts[1:])
    return [
        (step_of_rank, part)
        for step_of_rank, part in zip(
            zip(*(column[starts].tolist() for column in places), strict=True), parts, strict=True
        )
    ]


def recorded_judgements(run: Run) -> list[Accusation]:
    """Verdicts of `opscope run --check`, as accusations of their own kinds."""
    return [
        Accusation(
            process=row.process,
            index=row.index,
            kind=row.kind,
            reasons=(
                _words(row.kind, row.substitute, row.sample),
                *_sample_words(row.sample),
                *_replaced_words(row.sample),
                *node_words(nodes_of(row.sample)),
            ),
            confidence=_confidence(row.kind, row.sample),
            evidence={
                "substitute": row.substitute,
                "error": row.error,
                "tolerance": row.tolerance,
                "sample": row.sample,
                "inside": _names(row.sample, "inside"),
                **({"inputs_kept": True} if sample_of(row.sample).get("window") else {}),
            },
            judged=False,
            source=last_of(nodes_of(row.sample), "source"),
            module=last_of(nodes_of(row.sample), "module"),
        )
        for row in records(run, "judgements")
    ]


def _confidence(kind: str, sample: str | None) -> str:
    """A formula may differ from the derivative on purpose; a kernel never from its trusted form,
    nor from its own other forms.
    """
    if kind == "nondeterminism":
        return "proven"
    judged = sample_of(sample)
    if judged.get("differences"):
        return "suspected"
    return {1: "suspected", 2: "proven"}.get(judged.get("witnesses", 0), "likely")


def _words(kind: str, substitute: str | None, sample: str | None) -> str:
    if kind == "nondeterminism":
        return "the same inputs gave different bits when the call was run again"
    if kind == MISMATCH:
        return DEVIATES
    if sample_of(sample).get("differences"):
        return "its gradient formula is not the derivative of its results"
    what = "the gradient by its own formula" if sample_of(sample).get("gradient") else ""
    return (
        f"{what} differs from {substitute or 'its substitute'} by more than the tolerance".strip()
    )


def _replaced_words(sample: str | None) -> tuple[str, ...]:
    names = _names(sample, "replaced")
    return (
        (f"its kernel calls {', '.join(names)[:200]}, registered by this program",) if names else ()
    )


def _names(sample: str | None, key: str) -> list[str]:
    """Operators that a judgement names under this key."""
    names = sample_of(sample).get(key)
    return [str(name) for name in names] if isinstance(names, list) else []


def _sample_words(sample: str | None) -> tuple[str, ...]:
    """Where the worst element of a judged call is and what it should be; nothing when the run does
    not say.
    """
    judged = sample_of(sample)
    if not judged.get("worst"):
        return (str(judged["reason"])[:300],) if judged.get("reason") else ()
    element = (
        ", ".join(str(each) for each in judged["worst"])
        if isinstance(judged["worst"], list)
        else ""
    )
    beyond = (
        f"{judged.get('elements')} of {judged.get('of')} elements beyond; "
        if judged.get("elements")
        else ""
    )
    of = f"output {str(judged.get('output', '')).removeprefix('written:')}"
    if judged.get("gradient"):
        of = f"the gradient of argument {judged['gradient']}"
    witness = str(judged.get("reason", "")).partition("; ")[2]
    words = (
        (
            f"{beyond}element [{element}] of {of} is {judged.get('got')}, {judged.get('expected')} "
            "expected"
        ),
        witness,
    )
    return tuple(each[:300] for each in words if each)


def unmeasured(run: Run) -> tuple[str, ...]:
    """One line for each thing of a device that could not be read, mostly a kind of tensor: what is
    wrong there is not seen.
    """
    tables = [process.torch.get("not measured") for process in run.processes]
    unread = {
        (what, why) for each in tables if isinstance(each, dict) for what, why in each.items()
    }
    return tuple(sorted(f"not measured: {what} ({why})" for what, why in unread)[:8])


def slow_disk(run: Run) -> tuple[str, ...]:
    """One line when a process waited for the disk so long that its user noticed."""
    waited = max((process.waited or 0.0 for process in run.processes), default=0.0)
    if waited < NOTICED:
        return ()
    remedy = "record fewer values or steps, or to a faster disk with -o"
    return (f"{run.info.path}: the program waited {waited:.1f} s for the disk; {remedy}",)


def raised_elsewhere(run: Run, findings: Sequence[Finding]) -> tuple[str, ...]:
    """One line for each program that an exception ended, where no finding tells the call."""
    if any(finding.kind == "crash" for finding in findings):
        return ()
    raised = dict.fromkeys(process.uncaught for process in run.processes)
    return tuple(f"the program ended with {line}" for line in raised if line is not None)[:8]


def first_line(finding: Finding) -> str:
    """ "step 3 aten::bmm.default forward blocks.2.attn train.py:41" """
    words = [f"step {finding.step}", finding.op, finding.phase, finding.module, finding.source]
    return " ".join(word for word in words if word)


def beside_earlier(here: Document, there: Document, run: Run) -> dict[str, Any]:
    """Facts for a document's summary of an earlier run of the same command: that run and its
    verdict, and findings of either as lines.

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
