# SPDX-License-Identifier: Apache-2.0
"""Statistics of device tensors: worked out where the tensors lie, fetched in one transfer a device at the end of a step.

No call waits for the device. Between the ends of steps the rows of staged tensors wait too; a program without steps is
fetched when so many are staged that their rows would fill memory.
"""

from __future__ import annotations

from typing import Any

import torch

from opscope.kernels import Statistics
from opscope.kernels.device import from_device, keys_on, on_device

MOST_STAGED = 65536


class Staging:
    """Tickets and device tensors that hold the statistics of one tensor each."""

    def __init__(self) -> None:
        self._next = 0
        self._waiting: list[tuple[int, torch.Tensor, torch.dtype]] = []
        self._keys: dict[torch.device, Any] = {}  # of the digest, sent to each device once

    @property
    def full(self) -> bool:
        return len(self._waiting) >= MOST_STAGED

    def stage(self, tensor: torch.Tensor) -> int:
        """Launch the statistics of a tensor on its device; returns the ticket under which `fetch` gives them."""
        ticket = self._next
        self._next += 1
        if tensor.device not in self._keys:
            self._keys[tensor.device] = keys_on(torch, tensor.device)
        with torch.no_grad():
            self._waiting.append((ticket, on_device(torch, tensor.detach(), keys=self._keys[tensor.device]), tensor.dtype))
        return ticket

    def fetch(self) -> list[tuple[int, Statistics]]:
        """All staged statistics; one transfer for each device."""
        waiting, self._waiting = self._waiting, []
        found: list[tuple[int, Statistics]] = []
        for device in dict.fromkeys(words.device for _, words, _ in waiting):
            mine = [item for item in waiting if item[1].device == device]
            rows = torch.stack([words for _, words, _ in mine]).cpu()
            found += [(ticket, from_device(row, dtype)) for (ticket, _, dtype), row in zip(mine, rows, strict=True)]
        return found


def non_finite(statistics: Any) -> bool:
    return bool(statistics.nan or statistics.pos_inf or statistics.neg_inf)
