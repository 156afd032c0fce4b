# SPDX-License-Identifier: Apache-2.0
"""Which operators, run on a trusted substitute, make a command's failure go away.

Suspects first: each of the likeliest operators alone, then all of them together, which tells
whether an operator is guilty at all, then ddmin over all operators, likeliest first, for several
that are guilty together.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opscope.bisect.oracle import Observation, Oracle, Scan, oracle_for
from opscope.bisect.search import (
    RECORDING,
    Answers,
    Bisected,
    conclude,
    control,
    evidence,
    first_run,
    last_words,
    smallest,
)
from opscope.bisect.trials import Record, Tell, Trials
from opscope.errors import UsageError
from opscope.operators.catalogue import traits_of
from opscope.questions.told_operators import knowing_of
from opscope.run.finding import Finding
from opscope.run.query import rows_of

if TYPE_CHECKING:
    from opscope.run.finding import Document
    from opscope.run.protocol import Run

ALONE = 6  # suspects that are tried one by one before the search goes over all operators


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants of a search over operators."""

    oracle: Oracle | None
    kind: str = "cpu"
    ops: Callable[[str], bool] = lambda op: True  # noqa: ARG005
    most: int = 100


def bisect_operators(
    trials: Trials, asked: Asked, *, scan: Scan, open_run: Callable[[Path], Run], tell: Tell
) -> tuple[Bisected, Document]:
    """Find the guilty operators of a command, and the scan of its failing run.

    Raises UsageError when the command fails before an operator ran or does not fail at all,
    UnavailableError when its failure comes and goes, stays whatever is substituted, or cannot be
    told.
    """
    tell(f"runs the command as it is, to see how it fails; everything is kept in {trials.folder}")
    first = first_run(trials)
    document = scan(first.run) if first.run.exists() else None
    ran = _operators(open_run(first.run)) if document is not None else []
    if document is None or not ran:
        raise UsageError(
            f"the command ran no operator of torch before it ended{last_words(first)}; see "
            f"{first.folder}"
        )
    ops = [op for op in ran if asked.ops(op)]
    if not ops:
        raise UsageError(
            f"--ops leaves nothing to search: none of {len(ran)} operators matches, {ran[0]} "
            f"for one; see {first.folder}"
        )
    ranked = ranking(document, ops)
    oracle = asked.oracle or oracle_for(first, scan)
    if oracle is None:
        return _unobserved(document, ranked, trials), document

    def apply(elements: Sequence[str], name: str) -> Observation:
        rules = ("--substitute", f"{','.join(elements)}={asked.kind}") if elements else ()
        return trials.observe((*RECORDING, *rules), {}, name)

    answers = Answers(trials, oracle, apply, most=asked.most, tell=tell)
    control(
        answers, first, flaky=any(finding.kind == "nondeterminism" for finding in document.findings)
    )
    suspects = ranked[: min(ALONE, _accused(document, ranked))]
    guilty = smallest(answers, ranked, suspects)
    bisected = conclude(trials, answers, guilty, len(ranked))
    tried = trials.known(ranked)
    if guilty or not tried:
        return bisected, document
    return _with_refused(
        bisected, document, refused(open_run(trials.folder / tried[-1].folder / "run"))
    ), document


def refused(run: Run) -> dict[str, str]:
    """Operators that ran themselves in a trial because they have no substitute, with the reason."""
    told: dict[str, str] = {}
    for process in run.processes:
        told.update(process.substituted.get("refused", {}))
    return told


def _with_refused(bisected: Bisected, document: Document, without: Mapping[str, str]) -> Bisected:
    """A search that found nobody, with what could not be tried; those of them that the checks
    accuse are suspected.
    """
    if not without:
        return bisected
    suspects = _checks_accuse(document, without)
    named = suspects or tuple(sorted(without))[:5]
    why = f"{bisected.why}, and there is none for {', '.join(named)}: {without[named[0]]}"
    return msgspec.structs.replace(bisected, guilty=suspects, proven=False, why=why)


def _unobserved(document: Document, ranked: Sequence[str], trials: Trials) -> Bisected:
    """A command that fails in no way that can be seen: no trial can prove anything, but the checks
    of the first run may accuse.
    """
    return Bisected(
        guilty=_checks_accuse(document, ranked),
        question="",
        trials=trials.made,
        candidates=len(ranked),
        proven=False,
        why="the command ends well and shows no failure; say what good is with --metric "
        "'loss<2.5' or --oracle CMD",
    )


def _checks_accuse(document: Document, ops: Container[str]) -> tuple[str, ...]:
    """Those of some operators that the checks of a run accuse."""
    return tuple(
        dict.fromkeys(
            finding.op
            for finding in document.findings
            if finding.kind == "replay-mismatch" and finding.op is not None and finding.op in ops
        )
    )


def _operators(run: Run) -> list[str]:
    """Operators of a run that compute something, in the order of their first call."""
    first: dict[str, int] = {}
    for level, op, index in rows_of(run, "calls", ("level", "op", "index")):
        if level == "operator":
            first[op] = min(index, first.get(op, index))
    with knowing_of(run):
        return [op for op in sorted(first, key=first.__getitem__) if computes(op)]


def computes(op: str) -> bool:
    """Whether an operator does more than to view or to make memory, or to hand out a number."""
    known = traits_of(op)
    return not (known.view or known.allocates or known.leaves)


def ranking(document: Document, ops: Sequence[str]) -> list[str]:
    """The operators, those that the findings accuse first, in the findings' order; a backward
    call's own before its forward's.
    """
    accused = [op for finding in document.findings for op in _names(finding)]
    return list(dict.fromkeys([*(op for op in accused if op in ops), *ops]))


def _accused(document: Document, ranked: Sequence[str]) -> int:
    names = {op for finding in document.findings for op in _names(finding)}
    return sum(op in names for op in ranked)


def _names(finding: Finding) -> list[str]:
    return [
        op
        for op in (finding.op, finding.forward.op if finding.forward is not None else None)
        if op is not None
    ]


def operator_findings(
    bisected: Bisected, document: Document, records: Sequence[Record]
) -> tuple[Finding, ...]:
    """One finding for each guilty operator, with what scan knows of its first call."""
    made = []
    for op in bisected.guilty:
        known = next((finding for finding in document.findings if finding.op == op), None)
        base = known or Finding(kind="replay-mismatch", op=op)
        together = (
            "this operator runs"
            if len(bisected.guilty) == 1
            else f"{', '.join(bisected.guilty)} run"
        )
        reason = (
            f"the failure ({bisected.question}) goes away when {together} on the substitute"
            if bisected.proven
            else f"not proven: {bisected.why}"
        )
        made.append(
            msgspec.structs.replace(
                base,
                confidence="proven" if bisected.proven else "likely",
                reasons=(reason, *base.reasons),
                evidence=(*base.evidence, {"trials": evidence(records)}),
            )
        )
    return tuple(made)
