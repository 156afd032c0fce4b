# SPDX-License-Identifier: Apache-2.0
"""Names in a folder, by one system call and without a Path for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def file_names(folder: Path) -> list[str]:
    """Names of what is no folder, sorted; empty for a folder that cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if not entry.is_dir())
    except OSError:
        return []


def folder_names(folder: Path) -> list[str]:
    """Names of the folders in a folder, links left out, sorted."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def walk(folder: Path, depth: int) -> Iterator[tuple[Path, int]]:
    """A folder and those below it to a depth, each with its depth, parents first."""
    stack = [(folder, 0)]
    while stack:
        here, level = stack.pop()
        yield here, level
        if level < depth:
            stack.extend((here / name, level + 1) for name in reversed(folder_names(here)))
