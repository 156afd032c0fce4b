# SPDX-License-Identifier: Apache-2.0
"""In which steps the overflow status of devices that saturate was raised, for process.json.

Such a device clips what leaves its type to the largest value of it, and raises a status that stays
until the program clears it. It is read at the end of each step and never cleared: the program may
ask for it, too (GradScaler does).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_STRETCHES = 64  # how often a status is raised that is kept; it is not read after that


@dataclass
class Stretch:
    """Steps in a row at whose ends the status was raised; since: the first in which it may have
    been.
    """

    since: int
    seen: int
    until: int


@dataclass
class Readings:
    """What was read of one device, from the end of step first to that of step last."""

    first: int
    last: int
    raised: bool = False
    stretches: list[Stretch] = field(default_factory=list)


class FloatStatus:
    """What was read of devices at the ends of steps."""

    def __init__(self) -> None:
        self._readings: dict[str, Readings] = {}

    @property
    def full(self) -> bool:
        return any(
            len(readings.stretches) >= MOST_STRETCHES for readings in self._readings.values()
        )

    def note(self, step: int, raised: Mapping[str, bool]) -> bool:
        """Take what was read at a step's end, by device; whether one was raised anew."""
        rose = [self._note(step, device, now) for device, now in raised.items()]
        return any(rose)

    def _note(self, step: int, device: str, now: bool) -> bool:  # noqa: FBT001 - what was read
        since = 0
        if device in self._readings:
            since = min(self._readings[device].last + 1, step)
        readings = self._readings.setdefault(device, Readings(step, step))
        rose = now and not readings.raised
        readings.last, readings.raised = step, now
        if rose:
            readings.stretches.append(Stretch(since, step, step))
        elif now:
            readings.stretches[-1].until = step
        return rose

    def facts(self) -> dict[str, dict[str, list[int] | list[list[int]]]]:
        """What process.json says (docs/schema.md); nothing where no device saturates."""
        return {
            device: {
                "read": [readings.first, readings.last],
                "raised": [[each.since, each.seen, each.until] for each in readings.stretches],
            }
            for device, readings in self._readings.items()
        }
