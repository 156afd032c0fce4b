# SPDX-License-Identifier: Apache-2.0
"""What is to be written of a run, and how."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from opscope.formats.writing.engine import Wanted


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to make of each source. layout and shape are for CANN dump files, net for MindSpore's;
    jobs is how many threads work.
    """

    out: Path
    kind: str = "npy"
    wanted: Wanted = Wanted()
    layout: str | None = None
    shape: tuple[int, ...] = ()
    exact: bool = False
    jobs: int = 0
    net: str | None = None

    @property
    def threads(self) -> int:
        """How many threads work."""
        return self.jobs or os.cpu_count() or 1
