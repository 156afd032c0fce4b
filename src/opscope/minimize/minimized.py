# SPDX-License-Identifier: Apache-2.0
"""What a search for a smaller case may take, and what it gave."""

from __future__ import annotations

import msgspec

from opscope.repro.runner import Outcome


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How large a case is: elements its tensors hold, how many of them are neither zero nor one,
    bytes, shapes by slot.
    """

    elements: int
    telling: int
    bytes: int
    shapes: dict[str, tuple[int, ...]]


class Minimized(msgspec.Struct, frozen=True, kw_only=True):
    """What minimising a folder gave.

    ended: "done", "time" or "interrupted". outcome is what the new folder gave in a fresh process;
    directory is None when nothing was written, because the failure did not show (told says what
    did).
    """

    directory: str | None
    shown: int
    tried: int
    told: str
    ended: str = "done"
    trials: int = 0
    before: Size | None = None
    after: Size | None = None
    outcome: Outcome | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds for the whole search, and for one call."""

    search: float = 300.0
    call: float = 20.0
