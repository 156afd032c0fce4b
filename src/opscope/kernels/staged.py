# SPDX-License-Identifier: Apache-2.0
"""Versions whose statistics are still on a device, and what their arrival shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from opscope.kernels.calls import Draft, Version, kinds_made

Keep = Callable[[int, int, bool], "tuple[str, str] | None"]  # ticket, version, mask
UNASKED = -1


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

    def fetched(
        self, arrived: Sequence[tuple[int, Any]], calls: Iterable[Draft], keep: Keep
    ) -> bool:
        """Takes statistics by ticket; whether any are unsound.

        What a call read and made that made a kind of non-finite values which no operand held is
        kept as far as keep(ticket, version, mask) says where it was stored; the ticket is UNASKED
        of what was asked long ago and of what was made, mask: nothing but -inf was. What was asked
        before is let go.
        """
        unsound = set()
        for ticket, statistics in arrived:
            version = self._versions.get(ticket)
            if version is None:
                continue
            self.pending -= 1
            version.statistics = statistics
            if statistics and (statistics.nan or statistics.pos_inf or statistics.neg_inf):
                unsound.add(version.number)
        if unsound:
            self._keep_operands(unsound, calls, keep)
        first = min((ticket for ticket, _ in arrived), default=0)
        self._versions = {
            ticket: version for ticket, version in self._versions.items() if ticket >= first
        }
        return bool(unsound)

    def _keep_operands(self, unsound: set[int], calls: Iterable[Draft], keep: Keep) -> None:
        tickets = {version.number: ticket for ticket, version in self._versions.items()}
        for call in calls:
            made = [
                seen for seen in call.outputs if seen.version and seen.version.number in unsound
            ]
            kinds = kinds_made(call.inputs, made)
            if not kinds:
                continue
            for known, side in ((tickets, call.inputs), ({}, call.outputs)):
                for version in (seen.version for seen in side):
                    if version is not None and version.value is None:
                        ticket = known.get(version.number, UNASKED)
                        version.value = keep(ticket, version.number, kinds == {"neg_inf"})
