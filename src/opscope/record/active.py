# SPDX-License-Identifier: Apache-2.0
"""The recording this process is in, if any, and what the program chose for it: the state that
functions without a session need.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opscope.record.chosen import Chosen
from opscope.substitute.start import Started, start

if TYPE_CHECKING:
    from opscope.record.session import Session


class Active:
    """Holds at most one session; a forked child starts with none."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self.chosen = Chosen()
        self.marks: list[
            Callable[[], None]
        ] = []  # recordings of other frameworks that count steps too
        self.joined: Path | None = None  # the launcher's run, where another framework has joined it
        self.graphs: Any = None  # who records what torch.compile made, or did last
        self._started: Started | None = None

    @property
    def session(self) -> Session | None:
        """The running session, None when there is none or it has ended."""
        return self._session if self._session is not None and not self._session.closed else None

    def enter(self, session: Session) -> None:
        self._session = session

    def prepare(self) -> None:
        """Start the process that makes calls again, so that it is ready when a checker wants it."""
        self._started = self._started or start()

    def take_started(self) -> Started | None:
        """The process that was started before, None where there is none or it has been taken."""
        started, self._started = self._started, None
        return started

    def drop(self) -> None:
        self._session = None


active = Active()
