# SPDX-License-Identifier: Apache-2.0
"""How long a call may take before it counts as hanging: several times what a healthy one was seen
to take.
"""

from __future__ import annotations

from collections import deque

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
