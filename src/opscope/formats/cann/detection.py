# SPDX-License-Identifier: Apache-2.0
"""CANN dump files as a format: whether a path is one, or a directory that holds one, and who opens
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.formats.cann import dumpfile, tree
from opscope.formats.registry import Format, later

if TYPE_CHECKING:
    from pathlib import Path

_LOOKED_AT = 20_000  # files, before a directory is taken for something else


def detect(path: Path) -> bool:
    """Whether path is a CANN dump file, or a directory that holds one; judged by content."""
    return any(
        dumpfile.sniff(file.path) is not None for file in tree.found(path, look_at=_LOOKED_AT)
    )


FORMAT = Format(name="cann", detect=detect, open=later("opscope.formats.cann.run:open_dump"))
