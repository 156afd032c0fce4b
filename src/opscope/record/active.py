# SPDX-License-Identifier: Apache-2.0
"""The recording this process is in, if any: the one piece of state that `mark_step` and nested recordings need."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opscope.record.session import Session


class Active:
    """Holds at most one session; a forked child starts with none."""

    def __init__(self) -> None:
        self._session: Session | None = None

    @property
    def session(self) -> Session | None:
        """The running session, None when there is none or it has ended."""
        return self._session if self._session is not None and not self._session.closed else None

    def enter(self, session: Session) -> None:
        self._session = session

    def drop(self) -> None:
        self._session = None


active = Active()
