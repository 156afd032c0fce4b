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


def walk(
    folder: Path, depth: int, suffixes: str | tuple[str, ...] = ""
) -> Iterator[tuple[Path, list[str]]]:
    """A folder and those below it to a depth, parents first, each with the sorted names of its
    files that end in a suffix.
    """
    stack = [(folder, 0)]
    while stack:
        here, level = stack.pop()
        files, folders = _listed(here, suffixes)
        yield here, files
        if level < depth:
            stack.extend((here / name, level + 1) for name in reversed(folders))


def link_out(folder: Path) -> Path | None:
    """The first link below a folder to something outside of it that is there; None where there is
    none.
    """
    top = os.path.realpath(folder)
    stack = [os.fspath(folder)]
    while stack:
        links, folders = _links_and_folders(stack.pop())
        stack += folders
        out = next((link for link in map(Path, links) if _leads_out(link, top)), None)
        if out is not None:
            return out
    return None


def _links_and_folders(folder: str) -> tuple[list[str], list[str]]:
    """Paths of the links and of the folders in a folder, which the listing itself tells apart; none
    where it cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            others = [
                (entry.path, entry.is_symlink())
                for entry in entries
                if not entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return [], []
    return [path for path, link in others if link], [path for path, link in others if not link]


def _leads_out(link: Path, top: str) -> bool:
    there = Path(os.path.realpath(link))
    return there.exists() and not there.is_relative_to(top)


_NONE = ("/",)  # no name ends like this


def _listed(folder: Path, suffixes: str | tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Files with a suffix, and folders that are no links; nothing of a folder that cannot be
    listed.
    """
    files: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.name.endswith(suffixes) and entry.is_file():
                    # a pipe would be waited for without end
                    files.append(entry.name)
    except OSError:
        return [], []
    files.sort()
    folders.sort()
    return files, folders
