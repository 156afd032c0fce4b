# SPDX-License-Identifier: Apache-2.0
"""Whether a candidate still fails in the same way, and what "the same way" is."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from opscope.errors import UnavailableError
from opscope.minimize.candidate import Candidate, write_trial
from opscope.repro.case import Failure
from opscope.repro.forms import form_named
from opscope.repro.worker import SCRIPTS, Trial, Worker

RESULTS = "results.safetensors"
WORD = 10.0  # seconds a worker has, beside its child's, to say that the child hangs
JUDGED_BY_REFERENCE = frozenset({"nonfinite", "mismatch", "none"})
WITHOUT_RESULT = frozenset({"crash", "hang", "exception"})


class Oracle:
    """Tries candidates of one repro folder. Used as a with-block, which ends the workers."""

    def __init__(
        self,
        candidate: Candidate,
        *,
        imports: tuple[str, ...],
        limit: float,
        python: str | None = None,
        allowed: Sequence[str] = (),
    ) -> None:
        case = candidate.case
        self.limit = limit
        self.patience = Patience(limit)
        self.repeat = 1
        self.threads = 1  # starting a team of threads in every child costs more than most calls
        self.trials = 0
        self.first: Trial | None = None
        self.last: Trial | None = None
        self.failure: Failure = case.failure
        # what a trusted kernel gave for the first candidate that it was asked about
        self.trusted: Trial | None = None
        form = form_named(case.form)
        worker = SCRIPTS / form.worker
        self._code = form.section
        self._fork = (case.run_on or case.device).startswith("cpu")
        self._folder = Path(tempfile.mkdtemp(prefix="opscope-minimize-"))
        # What makes the calls is written here, of the case alone: the script in a folder may be
        # anybody's.
        script = self._folder / f"case{worker.suffix}"
        script.write_text(form.script(case), encoding="utf-8")
        self._worker = Worker(worker, script, imports, clean=False, python=python, allowed=allowed)
        self._clean = (
            Worker(worker, script, (), clean=True, python=python, allowed=allowed)
            if imports and self._fork
            else None
        )

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and remove what they read."""
        for worker in (self._worker, self._clean):
            if worker is not None:
                worker.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def make(self, candidate: Candidate, *, patient: bool = False) -> Trial:
        """Make a candidate's call once (as often as self.repeat says) and judge it; patient: a hang
        is waited for as long as may be.
        """
        self.trials += 1
        write_trial(candidate, self._folder)
        judged = self._judged_by(candidate)
        if judged is not None and judged.status != "done":
            return Trial(status="cannot", told=judged.told or judged.status)
        if (
            judged is not None
            and self.trusted is not None
            and set(judged.undefined) - set(self.trusted.undefined)
        ):
            return Trial(
                status="cannot", told="a trusted kernel leaves part of its results undefined"
            )
        hangs = self.failure.kind == "hang"
        limit = self.patience.limit(_elements(candidate)) if hangs and not patient else self.limit
        results = None if judged is None else str(self._folder / RESULTS)
        request = {
            **self._request(candidate, limit),
            "repeat": self.repeat,
            "fork": self._fork,
            "threads": self.threads,
            "results": results,
        }
        trial = self._worker.ask(request, limit + (WORD if self._fork else 0.0))
        if trial.status == "done":
            self.patience.learn(trial.seconds)
        return trial

    def _request(self, candidate: Candidate, limit: float) -> dict[str, Any]:
        return {
            "folder": str(self._folder),
            "code": self._code(candidate.case),
            "limit": limit,
            "repeat": self.repeat,
        }

    def learn(self, candidate: Candidate) -> None:
        """Have a trusted kernel make the call, where there is one, to see whether it can, and how
        long it takes when it does not hang.
        """
        write_trial(candidate, self._folder)
        self.trusted = self._asked_clean(candidate)
        if self.trusted is not None and self.trusted.status == "done":
            self.patience.learn(self.trusted.seconds)

    def _judged_by(self, candidate: Candidate) -> Trial | None:
        """What the process without the case's libraries says of the call, its results in a file;
        None where they judge nothing.

        A kernel that raises, ends the process or hangs is judged by one that does not, where the
        latter can make the call at all: shapes that do not fit each other end healthy kernels too,
        and in the same words.
        """
        kind = candidate.case.failure.kind
        returns = self.trusted is not None and self.trusted.status == "done"
        return (
            self._asked_clean(candidate)
            if kind in JUDGED_BY_REFERENCE or (kind in WITHOUT_RESULT and returns)
            else None
        )

    def _asked_clean(self, candidate: Candidate) -> Trial | None:
        if self._clean is None:
            return None
        request = self._request(candidate, self.limit) | {
            "repeat": 1,
            "fork": True,
            "threads": 1,
            "results": str(self._folder / RESULTS),
        }
        try:
            return self._clean.ask(request, self.limit + WORD)
        except UnavailableError:
            self._clean = None  # the operator is the library's own
            return None

    def fails(self, candidate: Candidate) -> Trial | None:
        """The trial, if the candidate fails in the same way as the first one did; None
        otherwise.
        """
        trial = self.last = self.make(candidate)
        return (
            trial
            if self.first is not None and same_failure(self.failure, self.first, trial)
            else None
        )


def _elements(candidate: Candidate) -> int:
    return sum(part.values.size for part in candidate.parts if part.values is not None)


def same_failure(failure: Failure, first: Trial, trial: Trial) -> bool:
    """Whether a candidate's failure is the recorded one, in class and pattern, and not another that
    shrinking made.
    """
    if failure.kind == "hang":
        return trial.status == "hang"
    if failure.kind == "crash":
        return trial.status == "died" and trial.code == first.code
    if trial.status != "done" or not trial.shown:
        return False
    common = [slot for slot in trial.pattern if slot in first.pattern]
    if failure.kind == "nonfinite":
        return any(_alike(first.pattern[slot], trial.pattern[slot]) for slot in common)
    if failure.kind == "mismatch":
        return trial.grade >= min(2.0, first.grade) and any(
            bool(first.pattern[slot]["classes"]) == bool(trial.pattern[slot]["classes"])
            for slot in common
        )
    return failure.kind == "exception" or bool(common)


def _alike(was: dict[str, Any], now: dict[str, Any]) -> bool:
    return bool(set(was["classes"]) & set(now["classes"])) and was.get("exact") == now.get("exact")


# How long a call may take before it counts as hanging: several times what a healthy one was seen
# to take.

RECENT = 8  # calls that tell: candidates get smaller, and machines busier
LEAST = 0.5  # seconds: a process that has to wait for a core is no hang
TIMES = 10.0
SURE = 5.0  # seconds for a call that somebody makes on another machine


class Patience:
    """Learns how long healthy calls take. most is the longest wait, in seconds."""

    def __init__(self, most: float) -> None:
        self.most = most
        self._seen: deque[float] = deque(maxlen=RECENT)

    @property
    def healthy(self) -> float | None:
        """Seconds of the slowest recent call that came back; None while none has."""
        return max(self._seen, default=None)

    def learn(self, seconds: float) -> None:
        """A call of this search came back after so many seconds."""
        self._seen.append(seconds)

    def limit(self, elements: int) -> float:
        """Seconds to wait for a call on so many elements; from their number alone while no call has
        come back.
        """
        healthy = self.healthy
        return min(
            self.most, 2.0 + elements / 1e5 if healthy is None else max(LEAST, TIMES * healthy)
        )

    @property
    def sure(self) -> float:
        """Seconds after which nobody doubts that a call hangs."""
        healthy = self.healthy
        return (
            self.most if healthy is None else min(self.most, max(SURE, round(10 * TIMES * healthy)))
        )
