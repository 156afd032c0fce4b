# SPDX-License-Identifier: Apache-2.0
"""What a recording knows of a training beside its rows (docs/store.md): optimizers and what they
hold, modes of modules, parameters that were one.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import msgspec


class Optimizer(msgspec.Struct, frozen=True):
    """One optimizer: its class, how often it stepped, the names of its parameters and how many have
    none.
    """

    kind: str
    steps: int = 0
    parameters: tuple[str, ...] = ()
    unnamed: int = 0


class Parted(msgspec.Struct, frozen=True):
    """Parameters that were one, and the step in which they no longer were."""

    step: int
    parameters: tuple[str, ...]


class Facts(msgspec.Struct, frozen=True):
    """Facts of one process."""

    optimizers: tuple[Optimizer, ...] = ()
    modes: dict[str, tuple[tuple[int, bool], ...]] = {}
    parted: tuple[Parted, ...] = ()

    @property
    def held(self) -> frozenset[str]:
        """Names of all parameters that optimizers hold."""
        return frozenset(name for each in self.optimizers for name in each.parameters)

    def trains(self, path: str, index: int) -> bool:
        """Whether a module was in training mode at a call; one of which nothing is noted was."""
        modes = self.modes.get(path, ())
        switches = bisect_right([begun for begun, _ in modes], index)
        return switches == 0 or modes[switches - 1][1]


def facts_of(torch: dict[str, Any]) -> Facts:
    """Out of column torch of a process, which comes from a file; nothing where it is not as it
    should be.
    """
    try:
        return msgspec.convert(torch.get("training", {}), Facts)
    except msgspec.ValidationError:
        return Facts()
