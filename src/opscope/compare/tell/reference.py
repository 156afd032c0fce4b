# SPDX-License-Identifier: Apache-2.0
"""A third run of higher precision decides: is the target further from it than golden is, or is
golden the side that is off?

Golden's calls are matched with the reference's, and the outputs of each call that a finding names
are judged by the dual standard (judge.dual): target's error against the reference beside golden's,
of values where all three keep them, else as far as statistics tell. A finding whose outputs err no
more than golden's is no finding; it is told in a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.pair.tensors import statistic_error
from opscope.compare.side.records import call_of, value_of
from opscope.errors import FormatError, MissingValueError, UsageError
from opscope.judge.agreement import DIFFER, Agreement
from opscope.judge.dual import dual_by_statistics, dual_standard
from opscope.narrow import name_of

if TYPE_CHECKING:
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side
    from opscope.run.finding import Document, Finding

NAMED = 3


class Verdict(msgspec.Struct, frozen=True):
    """Of one output: the target's against the reference, golden's with the roles exchanged, and
    whether values or statistics told.
    """

    target: Agreement
    golden: Agreement
    by_values: bool


def decide(document: Document, pairing: Pairing, reference: Pairing) -> Document:
    """The document with each divergence judged against the reference; reference pairs golden (as
    target) with the reference run.
    """
    findings: list[Finding] = []
    calls_of: dict[str, list[str]] = {words: [] for words in (_CLEARED, _GOLDEN_OFF, _UNKNOWN)}
    used = [0, 0]
    for finding in document.findings:
        if finding.kind != "divergence-origin":
            findings.append(finding)
            continue
        verdicts = list(_verdicts(finding, pairing, reference))
        if verdicts:
            used[0 if all(verdict.by_values for verdict in verdicts) else 1] += 1
        if not verdicts:
            calls_of[_UNKNOWN].append(finding.call or "")
            findings.append(finding)
        elif any(verdict.target.verdict == DIFFER for verdict in verdicts):
            findings.append(_told(finding, verdicts))
        else:
            calls_of[
                _GOLDEN_OFF
                if any(verdict.golden.verdict == DIFFER for verdict in verdicts)
                else _CLEARED
            ].append(finding.call or "")
    warnings = [*document.summary.get("warnings", ()), *_warnings(calls_of), *_used(used)]
    summary = {**document.summary, "warnings": warnings}
    return msgspec.structs.replace(
        document,
        findings=tuple(findings),
        verdict="found" if findings else "clean",
        summary=summary,
    )


_CLEARED = "differ from golden by no more than golden itself errs against the reference"
_GOLDEN_OFF = "differ because golden is the side that is off, by the reference"
_UNKNOWN = (
    "cannot be judged by the reference: it, golden or the target has neither values nor "
    "statistics of their outputs"
)


def _warnings(calls_of: dict[str, list[str]]) -> Iterator[str]:
    for words, calls in calls_of.items():
        if calls:
            more = f" and {len(calls) - NAMED} more" if len(calls) > NAMED else ""
            yield f"{', '.join(calls[:NAMED])}{more}: these calls {words}"


def _used(used: Sequence[int]) -> Iterator[str]:
    for count, words in zip(
        used, ("values", "statistics alone: errors may be larger than they tell"), strict=True
    ):
        if count:
            yield f"the reference judged {count} finding{'s' * (count > 1)} by {words}"


def _told(finding: Finding, verdicts: Sequence[Verdict]) -> Finding:
    """The finding with what the reference says: the worst output's words, and whether golden is off
    as well.
    """
    worst = max(
        (verdict.target for verdict in verdicts if verdict.target.verdict == DIFFER),
        key=lambda judged: judged.error or 0.0,
    )
    golden = next(
        (verdict.golden for verdict in verdicts if verdict.golden.verdict == DIFFER), None
    )
    also = () if golden is None else (f"golden is off too: {golden.words}",)
    evidence = (
        {**(finding.evidence[0] if finding.evidence else {}), "reference": worst.words},
        *finding.evidence[1:],
    )
    return msgspec.structs.replace(
        finding, reasons=(*finding.reasons, worst.words, *also), evidence=evidence
    )


def _verdicts(finding: Finding, pairing: Pairing, reference: Pairing) -> Iterator[Verdict]:
    """Of each output of a finding's call that all three runs have."""
    call = call_of(pairing.target, finding)
    rows = pairing.rows
    own = (
        np.flatnonzero(
            (rows.target_call == call) & rows.output & (rows.target >= 0) & (rows.golden >= 0)
        )
        if call >= 0
        else ()
    )
    for row in own:
        golden_row = int(rows.golden[row])
        at = np.flatnonzero((reference.rows.target == golden_row) & (reference.rows.golden >= 0))
        if len(at):
            sides = (
                (pairing.target, int(rows.target[row])),
                (pairing.golden, golden_row),
                (reference.golden, int(reference.rows.golden[at[0]])),
            )
            verdict = _by_values(sides) or _by_statistics(sides)
            if verdict is not None:
                yield verdict


def _by_values(sides: Sequence[tuple[Side, int]]) -> Verdict | None:
    if not all(side.tensors.kept[row] for side, row in sides):
        return None
    try:
        target, golden, true = (value_of(side, row) for side, row in sides)
    except (FormatError, MissingValueError, UsageError, MemoryError):
        return None
    if not target.shape == golden.shape == true.shape:
        return None
    name = name_of(golden.dtype)
    return Verdict(
        dual_standard(target, golden, true, dtype=name),
        dual_standard(golden, target, true, dtype=name),
        by_values=True,
    )


def _by_statistics(sides: Sequence[tuple[Side, int]]) -> Verdict | None:
    (target, target_row), (golden, golden_row), (true, true_row) = sides
    errors = [
        float(statistic_error(side.tensors, true.tensors, np.array([row]), np.array([true_row]))[0])
        for side, row in ((target, target_row), (golden, golden_row))
    ]
    known = all(
        side.tensors.nan[row] >= 0 and np.isfinite(side.tensors.l2norm[row]) for side, row in sides
    )
    if not known or any(np.isnan(errors)):
        return None
    dtype = golden.words.get(int(golden.tensors.dtype[golden_row]), "")
    mine, theirs = errors
    return Verdict(
        dual_by_statistics(mine, theirs, dtype=dtype),
        dual_by_statistics(theirs, mine, dtype=dtype),
        by_values=False,
    )
