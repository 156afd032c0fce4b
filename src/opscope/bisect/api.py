# SPDX-License-Identifier: Apache-2.0
"""Which operators, run on a trusted substitute, make a command's failure go away.

Suspects first: each of the likeliest operators alone, then all of them together, which tells
whether an operator is guilty at all, then ddmin over all operators, likeliest first, for several
that are guilty together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.bisect.oracle import BAD, GOOD, UNCLEAR, Observation, Oracle, Scan, oracle_for
from opscope.bisect.trials import Record, Tell, Trials
from opscope.errors import UnavailableError, UsageError
from opscope.operators.catalogue import traits_of
from opscope.repro.ddmin import ddmin
from opscope.run.query import sql

if TYPE_CHECKING:
    from opscope.run.finding import Document, Finding
    from opscope.run.protocol import Run

ALONE = 6  # suspects that are tried one by one before the search goes over all operators
RECORDING = ("--values", "none")
CONTROLS = 5  # runs of the command as it is, when it failed the first time alone
# good runs that make a change good, where an operator was seen to give other results each time
REPEATS = 3
MOST_RUNS = 12


class Bisected(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found: guilty is the smallest set whose change made the failure go away; empty:
    no set did.

    question is the failure in words, proven whether a trial showed it (False: only suspected, no
    observable failure).
    """

    guilty: tuple[str, ...]
    question: str
    why: str
    trials: int
    candidates: int
    proven: bool = True
    good: str | None = None
    bad: str | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants of a search over operators."""

    oracle: Oracle | None
    kind: str = "cpu"
    ops: Callable[[str], bool] = lambda op: True  # noqa: ARG005
    most: int = 100


class Answers:
    """Trials judged by an oracle, each set of elements once: a set is bad after one bad run, and
    good after `times` good ones.
    """

    def __init__(
        self,
        trials: Trials,
        oracle: Oracle,
        apply: Callable[[Sequence[str], str], Observation],
        *,
        most: int,
        tell: Tell,
    ) -> None:
        self.trials = trials
        self.oracle = oracle
        self.apply = apply
        self.most = most
        self.tell = tell
        self.times = 1  # more for a failure that comes and goes
        self._told: set[str] = set()

    def ask(self, elements: Sequence[str]) -> str:
        """The verdict on runs in which these elements are changed."""
        made = self.trials.known(elements)
        for record in made:
            self._tell(record, elements)
        while not made or (made[-1].verdict == GOOD and len(made) < self.times):
            if self.trials.made >= self.most:
                raise UnavailableError(
                    f"{self.most} trials were not enough; go on with --trials "
                    f"{2 * self.most}, the log is kept"
                )
            seen = self.apply(elements, f"trial-{len(self.trials.records):03d}")
            made = (*made, self.trials.note(elements, self.oracle.judge(seen), seen))
            self._tell(made[-1], elements)
        return made[-1].verdict

    def _tell(self, record: Record, elements: Sequence[str]) -> None:
        if (
            record.folder in self._told
            # a search asks the same thing again, and an earlier one of this folder may have asked
            # it
        ):
            return
        named = (
            ", ".join(elements)
            if 0 < len(elements) <= 3
            else f"{len(elements)} changed"
            if elements
            else "as it is"
        )
        self.tell(f"{record.verdict:<8} {record.seconds:6.1f} s  {named}")
        self._told.add(record.folder)


def bisect_operators(
    trials: Trials, asked: Asked, *, scan: Scan, open_run: Callable[[Path], Run], tell: Tell
) -> tuple[Bisected, Document]:
    """Find the guilty operators of a command, and the scan of its failing run.

    Raises UsageError when the command fails before an operator ran or does not fail at all,
    UnavailableError when its failure comes and goes, stays whatever is substituted, or cannot be
    told.
    """
    tell(f"runs the command as it is, to see how it fails; everything is kept in {trials.folder}")
    first = _first(trials)
    document = scan(first.run) if first.run.exists() else None
    ran = _operators(open_run(first.run)) if document is not None else []
    if document is None or not ran:
        raise UsageError(
            f"the command ran no operator of torch before it ended{_last_words(first)}; see "
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
    _control(
        answers, first, flaky=any(finding.kind == "nondeterminism" for finding in document.findings)
    )
    suspects = ranked[: min(ALONE, _accused(document, ranked))]
    guilty = _search(answers, ranked, suspects)
    found = _conclude(trials, answers, guilty, len(ranked))
    tried = trials.known(ranked)
    if guilty or not tried:
        return found, document
    return _with_refused(
        found, document, refused(open_run(trials.folder / tried[-1].folder / "run"))
    ), document


def refused(run: Run) -> dict[str, str]:
    """Operators that ran themselves in a trial because they have no substitute, with the reason."""
    told: dict[str, str] = {}
    for process in run.processes:
        told.update(process.substituted.get("refused", {}))
    return told


def _with_refused(found: Bisected, document: Document, without: Mapping[str, str]) -> Bisected:
    """A search that found nobody, with what could not be tried; those of them that the checks
    accuse are suspected.
    """
    if not without:
        return found
    wrong = dict.fromkeys(
        finding.op
        for finding in document.findings
        if finding.kind == "replay-mismatch" and finding.op in without
    )
    suspects = tuple(op for op in wrong if op is not None)
    named = suspects or tuple(sorted(without))[:5]
    why = f"{found.why}, and there is none for {', '.join(named)}: {without[named[0]]}"
    return msgspec.structs.replace(found, guilty=suspects, proven=False, why=why)


def _first(trials: Trials) -> Observation:
    """The command as it is, its calls checked against the substitute, which ranks the suspects."""
    folder = trials.folder / "first"
    done = folder / "ended.json"
    if done.exists():
        code, seconds = msgspec.json.decode(done.read_bytes(), type=tuple[int | None, float])
        trials.learn(code, seconds)
        return Observation(folder=folder, exit_code=code, seconds=seconds)
    seen = trials.observe((*RECORDING, "--check"), {}, "first")
    done.write_bytes(msgspec.json.encode((seen.exit_code, seen.seconds)))
    return seen


def _control(answers: Answers, first: Observation, *, flaky: bool) -> None:
    """The command as it is must be bad; one that was so the first time alone is run more often, and
    so is each change of it then.
    """
    oracle = answers.oracle
    verdict = answers.ask(())
    failed = verdict == GOOD and oracle.judge(first) == BAD
    if failed:
        answers.times = CONTROLS
        verdict = answers.ask(())
    if verdict == GOOD:
        came = (
            f"it did once, and in none of {CONTROLS} more runs"
            if failed
            else "nothing to search for"
        )
        raise UsageError(f"the command does not fail, {came}; bad would be: {oracle.words}")
    if verdict == UNCLEAR:
        raise UnavailableError(f"cannot tell good from bad on the command as it is: {oracle.doubt}")
    runs = 1 + len(answers.trials.known(()))
    answers.times = needed_runs(2 / runs) if failed else REPEATS if flaky else 1
    if answers.times > 1:
        came = (
            f"the failure came in 2 of {runs} runs"
            if failed
            else "an operator gives other results each time"
        )
        answers.tell(f"{came}: a change counts as good after {answers.times} good runs")


def needed_runs(share: float) -> int:
    """Runs, of which none fails in one of twenty cases where this share of runs does."""
    return min(MOST_RUNS, math.ceil(math.log(0.05) / math.log(1 - share)))


def _search(answers: Answers, ranked: Sequence[str], suspects: Sequence[str]) -> tuple[str, ...]:
    """The smallest set found whose substitution is good; empty when even all operators together are
    not.
    """
    for suspect in suspects:
        if answers.ask((suspect,)) == GOOD:
            return (suspect,)
    if len(suspects) > 1 and answers.ask(suspects) == GOOD:
        return tuple(ddmin(suspects, lambda chosen: answers.ask(chosen) == GOOD))
    everything = answers.ask(ranked)
    if everything == BAD:
        return ()
    found = tuple(ddmin(ranked, lambda chosen: answers.ask(chosen) == GOOD, patience=len(ranked)))
    return found if everything == GOOD or len(found) < len(ranked) else ()


def _conclude(trials: Trials, answers: Answers, guilty: Sequence[str], candidates: int) -> Bisected:
    question = answers.oracle.words
    bad = next((record for record in trials.known(()) if record.verdict == BAD), None)
    bad_folder = None if bad is None else str(trials.show(bad, "bad"))
    if not guilty:
        everything = trials.records[-1] if trials.records else None
        unclear = everything is not None and all(
            record.verdict != BAD for record in trials.records if record.elements
        )
        why = (
            "no trial could tell"
            if unclear
            else "the failure stays whatever operators are substituted"
        )
        return Bisected(
            guilty=(),
            question=question,
            why=why,
            trials=trials.made,
            candidates=candidates,
            bad=bad_folder,
        )
    good = next(iter(trials.known(guilty)), None)
    return Bisected(
        guilty=tuple(guilty),
        question=question,
        why="the failure goes away",
        trials=trials.made,
        candidates=candidates,
        bad=bad_folder,
        good=None if good is None else str(trials.show(good, "good")),
    )


def _unobserved(document: Document, ranked: Sequence[str], trials: Trials) -> Bisected:
    """A command that fails in no way that can be seen: no trial can prove anything, but the checks
    of the first run may accuse.
    """
    accused = dict.fromkeys(
        finding.op
        for finding in document.findings
        if finding.kind == "replay-mismatch" and finding.op in ranked
    )
    return Bisected(
        guilty=tuple(op for op in accused if op is not None),
        question="",
        trials=trials.made,
        candidates=len(ranked),
        proven=False,
        why="the command ends well and shows no failure; say what good is with --metric "
        "'loss<2.5' or --oracle CMD",
    )


def _operators(run: Run) -> list[str]:
    """Operators of a run that compute something, in the order of their first call."""
    query = (
        "SELECT op, min(\"index\") AS first FROM calls WHERE level = 'operator' GROUP BY op "
        "ORDER BY first"
    )
    return [row["op"] for row in sql(run, query) if computes(row["op"])]


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


def _last_words(seen: Observation) -> str:
    own, _, _ = seen.stderr.partition("\nopscope  ")  # where the verdict of the recording begins
    lines = [line for line in own.splitlines() if line.strip() and not line.startswith("opscope:")]
    ended = "" if seen.exit_code in {0, None} else f" with exit code {seen.exit_code}"
    return f"{ended} ({lines[-1].strip()[:200]})" if lines and ended else ended


def evidence(records: Sequence[Record]) -> tuple[dict[str, Any], ...]:
    """The trials as data for a finding."""
    return tuple(
        {"changed": list(record.elements), "verdict": record.verdict, "seconds": record.seconds}
        for record in records[:200]
    )
