# SPDX-License-Identifier: Apache-2.0
"""Names in a folder, by one system call and without a Path for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def file_names(folder: Path) -> list[str]:
    """Names of the files in a folder, sorted; empty for a folder that cannot be listed."""
    return _listed(folder, "")[0]


def folder_names(folder: Path) -> list[str]:
    """Names of the folders in a folder, links left out, sorted."""
    return _listed(folder, _NONE)[1]


def walk(folder: Path, depth: int, suffixes: str | tuple[str, ...] = "") -> Iterator[tuple[Path, list[str]]]:
    """A folder and those below it to a depth, parents first, each with the sorted names of its files that end in a suffix."""
    stack = [(folder, 0)]
    while stack:
        here, level = stack.pop()
        files, folders = _listed(here, suffixes)
        yield here, files
        if level < depth:
            stack.extend((here / name, level + 1) for name in reversed(folders))


_NONE = ("/",)  # no name ends like this


def _listed(folder: Path, suffixes: str | tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Files with a suffix, and folders that are no links; nothing of a folder that cannot be listed."""
    files: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.name.endswith(suffixes) and entry.is_file():  # a pipe would be waited for without end
                    files.append(entry.name)
    except OSError:
        return [], []
    files.sort()
    folders.sort()
    return files, folders
