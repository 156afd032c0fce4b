# SPDX-License-Identifier: Apache-2.0
"""Which versions of packages a Python process can import, by the names of their folders alone."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress

_METADATA = re.compile(
    r"([A-Za-z0-9][\w.-]*)-(\d[^-]*)\.(?:dist-info|egg-info)|([A-Za-z0-9][\w.]*)-(\d[^-]*)-py[\d.]+\.egg-info",
    re.ASCII,
)
_MOST = 5000  # packages that are told, of however many there are


def installed_packages(path: Sequence[str] | None = None) -> dict[str, str]:
    """Version by name (lower case, with underscores) of what lies on this path (sys.path), the
    first of a name as in imports.
    """
    found: dict[str, str] = {}
    for folder in sys.path if path is None else path:
        with suppress(OSError):
            for entry in sorted(os.listdir(folder or ".")):  # noqa: PTH208 - made at the start of every process: no object per entry
                told = _METADATA.fullmatch(entry)
                if told is not None and len(found) < _MOST:
                    name, version = (told[1], told[2]) if told[1] else (told[3], told[4])
                    found.setdefault(name.lower().replace("-", "_").replace(".", "_"), version)
    return found
