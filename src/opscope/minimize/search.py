# SPDX-License-Identifier: Apache-2.0
"""The state of one search for a smaller case: the best so far, and what is left of the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from opscope.repro.worker import Trial
from opscope.run.progress import Progress, nobody

SECONDS = "seconds of the search, at most"  # what a search tells its progress by


class OutOfTime(Exception):  # noqa: N818 - the end of a search is not an error
    """The time for the search is up; the best candidate stands."""


Tried = TypeVar("Tried")
Tried_contra = TypeVar("Tried_contra", contravariant=True)


class Tries(Protocol[Tried_contra]):
    """What tells whether a candidate fails as the first one did, and what came of the last."""

    trials: int
    last: Trial | None

    def fails(self, candidate: Tried_contra, /) -> Trial | None: ...


class Search(Generic[Tried]):
    """Asks the oracle about candidates and keeps each that still fails; ideas only ever make the
    best one smaller.
    """

    def __init__(
        self,
        oracle: Tries[Tried],
        best: Tried,
        first: Trial,
        *,
        seconds: float,
        tell: Callable[[str], None],
        progress: Progress = nobody,
    ) -> None:
        self.oracle = oracle
        self.best = best
        self.trial = first
        self.tell = tell
        self.last: Trial | None = first
        self._progress, self._seconds = progress, seconds
        self._deadline = time.monotonic() + seconds

    def keeps(self, candidate: Tried | None) -> bool:
        """Whether a candidate fails in the same way; it is the best one then. OutOfTime when the
        search is over.
        """
        if candidate is None:
            return False
        left = self._deadline - time.monotonic()
        if left < 0:
            raise OutOfTime
        self._progress(SECONDS, int(self._seconds - left), int(self._seconds))
        trial = self.oracle.fails(candidate)
        self.last = self.oracle.last
        if trial is None:
            return False
        self.best, self.trial = candidate, trial
        return True
