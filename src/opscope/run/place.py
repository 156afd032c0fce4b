# SPDX-License-Identifier: Apache-2.0
"""Where something new goes that a user names."""

from __future__ import annotations

import os
from pathlib import Path

from opscope.errors import UsageError


def with_own_name(path: Path) -> Path:
    """The path as it was written, of one that ends in `.` or `..` the folder that it means: a
    sibling of it has a name then. UsageError for the root of the file system.
    """
    if path.name not in {"", ".."}:
        return path
    folder = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links the user chose
    if not folder.name:
        raise UsageError(f"{path}: nothing can be written beside it; name a file or folder in it")
    return folder
