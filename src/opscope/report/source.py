# SPDX-License-Identifier: Apache-2.0
"""Source lines: `/full/path/train.py:41` as a user reads it, and the text of that line."""

from __future__ import annotations

import stat
from pathlib import Path, PurePath

MAX_FILE = 4 << 20


def parse_place(source: str) -> tuple[str, int] | None:
    """File and line of `/full/path/train.py:41`, with or without ` in function`; None for anything
    else.
    """
    place = source.rpartition(" in ")[0] or source
    file, _, line = place.rpartition(":")
    return (
        (file, int(line)) if file and line.isascii() and line.isdigit() and len(line) < 10 else None
    )


def short_place(source: str, *, here: Path) -> str:
    """The place relative to a directory it lies below; elsewhere its last two parts,
    `…/models/gpt.py:41`.
    """
    path = PurePath(source)
    if path.is_relative_to(here):
        return str(path.relative_to(here))
    return source if len(path.parts) <= 3 else str(PurePath("…", *path.parts[-2:]))


def text_of(source: str) -> str | None:
    """The line of code, without its indentation; None when it cannot be had."""
    place = parse_place(source)
    lines = None if place is None else lines_of(place[0])
    if place is None or lines is None:
        return None
    return lines[place[1] - 1].strip() or None if 0 < place[1] <= len(lines) else None


def lines_of(file: str) -> list[str] | None:
    """The lines of a source file; None when they cannot be had.

    The path comes from a run and may name anything: only regular Python files of sensible size are
    read.
    """
    if not file.endswith(".py"):
        return None
    path = Path(file)
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE:
            return None
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return None


def names_place(source: str, wanted: tuple[str, int]) -> bool:
    """Whether a place is meant by FILE:LINE; FILE may be the last parts of a path, whole ones:
    `train.py`, `models/gpt.py`.
    """
    place = parse_place(source)
    if place is None or place[1] != wanted[1]:
        return False
    return place[0] == wanted[0] or place[0].endswith("/" + wanted[0].lstrip("/"))
