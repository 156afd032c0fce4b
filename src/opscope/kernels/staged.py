# SPDX-License-Identifier: Apache-2.0
"""Versions whose statistics are still on a device, and what their arrival shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from opscope.kernels.calls import Draft, Version

Keep = Callable[[int], "tuple[str, str] | None"]


class Staged:
    """Versions by the ticket under which a device was asked; pending counts those that have not
    been answered.
    """

    def __init__(self) -> None:
        self._versions: dict[int, Version] = {}
        self.pending = 0

    def add(self, ticket: int, version: Version) -> None:
        self._versions[ticket] = version
        self.pending += 1

    def fetched(self, found: Sequence[tuple[int, Any]], calls: Iterable[Draft], keep: Keep) -> bool:
        """Takes statistics by ticket; whether any are unsound.

        What the operands of a call held that made something unsound of sound ones is kept as far as
        keep(ticket) says where it was stored. What was asked before is let go.
        """
        unsound = set()
        for ticket, statistics in found:
            version = self._versions.get(ticket)
            if version is None:
                continue
            self.pending -= 1
            version.statistics = statistics
            if statistics and (statistics.nan or statistics.pos_inf or statistics.neg_inf):
                unsound.add(version.number)
        if unsound:
            self._keep_operands(unsound, calls, keep)
        first = min((ticket for ticket, _ in found), default=0)
        self._versions = {
            ticket: version for ticket, version in self._versions.items() if ticket >= first
        }
        return bool(unsound)

    def _keep_operands(self, unsound: set[int], calls: Iterable[Draft], keep: Keep) -> None:
        tickets = {version.number: ticket for ticket, version in self._versions.items()}
        for call in calls:
            given = [seen.version for seen in call.inputs if seen.version is not None]
            made = {seen.version.number for seen in call.outputs if seen.version is not None}
            if not made & unsound or any(version.number in unsound for version in given):
                continue
            for version in given:
                if version.value is None and version.number in tickets:
                    version.value = keep(tickets[version.number])
