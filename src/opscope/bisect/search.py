# SPDX-License-Identifier: Apache-2.0
"""The search that all bisections share: the command as it is, which must fail; trials judged by an
oracle, each set of elements once; the smallest set that makes the failure go away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from opscope.bisect.oracle import BAD, GOOD, UNCLEAR, Observation, Oracle
from opscope.bisect.trials import Record, Tell, Trials
from opscope.errors import UnavailableError, UsageError
from opscope.repro.ddmin import ddmin

RECORDING = ("--values", "none")
CONTROLS = 5  # runs of the command as it is, when it failed the first time alone
# good runs that make a change good, where an operator was seen to give other results each time
REPEATS = 3
MOST_RUNS = 12


class Bisected(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found: guilty is the smallest set whose change made the failure go away; empty:
    no set did.

    question is the failure in words, proven whether a trial showed it (False: only suspected, no
    observable failure); change is what was done to it. stage: the guilty part of the compiler.
    """

    guilty: tuple[str, ...]
    question: str
    why: str
    trials: int
    candidates: int
    proven: bool = True
    good: str | None = None
    bad: str | None = None
    change: str = "changed"
    stage: str | None = None


class TooManyTrialsError(UnavailableError):
    """A search asked for more runs of the command than the user gave it."""


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
                raise TooManyTrialsError(
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


def first_run(trials: Trials) -> Observation:
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


def control(answers: Answers, first: Observation, *, flaky: bool) -> None:
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


def smallest(answers: Answers, ranked: Sequence[str], suspects: Sequence[str]) -> tuple[str, ...]:
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
    fewest = tuple(ddmin(ranked, lambda chosen: answers.ask(chosen) == GOOD, patience=len(ranked)))
    return fewest if everything == GOOD or len(fewest) < len(ranked) else ()


def conclude(trials: Trials, answers: Answers, guilty: Sequence[str], candidates: int) -> Bisected:
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


def evidence(records: Sequence[Record]) -> tuple[dict[str, Any], ...]:
    """The trials as data for a finding."""
    return tuple(
        {"changed": list(record.elements), "verdict": record.verdict, "seconds": record.seconds}
        for record in records[:200]
    )


def last_words(seen: Observation) -> str:
    """How a command ended that failed, in parentheses its last line."""
    own, _, _ = seen.stderr.partition("\nopscope  ")  # where the verdict of the recording begins
    lines = [line for line in own.splitlines() if line.strip() and not line.startswith("opscope:")]
    ended = "" if seen.exit_code in {0, None} else f" with exit code {seen.exit_code}"
    return f"{ended} ({lines[-1].strip()[:200]})" if lines and ended else ended
