# SPDX-License-Identifier: Apache-2.0
"""A third run of higher precision decides: is the target further from it than golden is, or is golden the side that is off?

Golden's calls are matched with the reference's, and the outputs of each call that a finding names are judged by the dual standard
(judge.dual): target's error against the reference beside golden's. A finding whose outputs err no more than golden's is no
finding; it is told in a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.analysis.compare_details import tensor_records
from opscope.errors import FormatError, MissingValueError, UsageError
from opscope.judge.agreement import DIFFER, Agreement
from opscope.judge.dual import dual_standard

if TYPE_CHECKING:
    from opscope.analysis.compare_judge import Pairing
    from opscope.analysis.compare_tables import Side
    from opscope.run.finding import Document, Finding

Values = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any], str]
NAMED = 3


def decide(document: Document, pairing: Pairing, reference: Pairing) -> Document:
    """The document with each divergence judged against the reference; reference pairs golden (as target) with the reference run."""
    kept: list[Finding] = []
    cleared: list[str] = []
    golden_off: list[str] = []
    unknown: list[str] = []
    for finding in document.findings:
        verdicts = None if finding.kind != "divergence-origin" else [_judged(values) for values in _outputs(finding, pairing, reference)]
        if verdicts is None:
            kept.append(finding)
        elif not verdicts:
            unknown.append(finding.call or "")
            kept.append(finding)
        elif any(mine.verdict == DIFFER for mine, _ in verdicts):
            kept.append(_told(finding, verdicts))
        else:
            (golden_off if any(theirs.verdict == DIFFER for _, theirs in verdicts) else cleared).append(finding.call or "")
    warnings = [*document.summary.get("warnings", ()), *_warnings(cleared, golden_off, unknown)]
    summary = {**document.summary, "warnings": warnings}
    return msgspec.structs.replace(document, findings=tuple(kept), verdict="found" if kept else "clean", summary=summary)


def _warnings(cleared: Sequence[str], golden_off: Sequence[str], unknown: Sequence[str]) -> Iterator[str]:
    for calls, words in (
        (cleared, "differ from golden by no more than golden itself errs against the reference"),
        (golden_off, "differ because golden is the side that is off, by the reference"),
        (unknown, "cannot be judged by the reference: it, golden or the target keeps no values of their outputs"),
    ):
        if calls:
            more = f" and {len(calls) - NAMED} more" if len(calls) > NAMED else ""
            yield f"{', '.join(calls[:NAMED])}{more}: these calls {words}"


def _judged(values: Values) -> tuple[Agreement, Agreement]:
    """The target's verdict, and golden's with the roles exchanged."""
    target, golden, true, dtype = values
    return dual_standard(target, golden, true, dtype=dtype), dual_standard(golden, target, true, dtype=dtype)


def _told(finding: Finding, verdicts: Sequence[tuple[Agreement, Agreement]]) -> Finding:
    """The finding with what the reference says: the worst output's words, and whether golden is off as well."""
    worst = max((mine for mine, _ in verdicts if mine.verdict == DIFFER), key=lambda found: found.error or 0.0)
    golden = next((theirs for _, theirs in verdicts if theirs.verdict == DIFFER), None)
    also = () if golden is None else (f"golden is off too: {golden.words}",)
    evidence = ({**(finding.evidence[0] if finding.evidence else {}), "reference": worst.words}, *finding.evidence[1:])
    return msgspec.structs.replace(finding, reasons=(*finding.reasons, worst.words, *also), evidence=evidence)


def _outputs(finding: Finding, pairing: Pairing, reference: Pairing) -> Iterator[Values]:
    """Values of target, golden and reference of each output of a finding's call that all three keep, and golden's element type."""
    call = _call(finding, pairing.target)
    rows = pairing.rows
    own = np.flatnonzero((rows.target_call == call) & rows.output & (rows.target >= 0) & (rows.golden >= 0)) if call >= 0 else ()
    for row in own:
        place = int(rows.golden[row])
        at = np.flatnonzero((reference.rows.target == place) & (reference.rows.golden >= 0))
        if not len(at):
            continue
        sides = ((pairing.target, int(rows.target[row])), (pairing.golden, place), (reference.golden, int(reference.rows.golden[at[0]])))
        try:
            values = [_value(side, where) for side, where in sides]
        except (FormatError, MissingValueError, UsageError, MemoryError):
            continue
        if values[0].shape == values[1].shape == values[2].shape:
            yield values[0], values[1], values[2], values[1].dtype.name


def _call(finding: Finding, side: Side) -> int:
    calls = side.calls
    found = np.flatnonzero(
        (calls.rank == finding.rank) & (calls.step == finding.step) & (calls.index == (-1 if finding.index is None else finding.index))
    )
    return int(found[0]) if len(found) else -1


def _value(side: Side, place: int) -> np.ndarray[Any, Any]:
    return side.run.value(tensor_records(side, np.array([place], dtype=np.int64))[place])
