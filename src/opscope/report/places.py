# SPDX-License-Identifier: Apache-2.0
"""The line of code that a finding stands at, as tools of continuous integration want it."""

from __future__ import annotations

from pathlib import Path

from opscope.run.finding import Finding
from opscope.run.printable import printable


def place_of(finding: Finding, here: Path) -> tuple[str, int] | None:
    """File, relative to here where it lies below, and line; None where the finding has none."""
    file, _, line = (finding.source or "").rpartition(":")
    if not file or not line.isascii() or not line.isdecimal() or len(line) > 9 or int(line) < 1:
        return None
    path = Path(file)
    inside = path.is_relative_to(here) and ".." not in path.parts
    return printable((path.relative_to(here) if inside else path).as_posix()), int(line)
