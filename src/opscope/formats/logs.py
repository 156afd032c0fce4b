# SPDX-License-Identifier: Apache-2.0
"""Texts that a tool printed while a model ran: which files they are, and their lines with bounds on
both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from opscope.errors import FormatError
from opscope.formats.folders import file_names
from opscope.run.schema import Call

_HEAD = 1 << 16
_MAX_FILES = 1024
_SIZE_LIMIT = 1 << 30
_LINE_LIMIT = 1 << 20
_SUFFIXES = (".txt", ".log", ".out")
_RANK = re.compile(r"(?:rank|proc)[_-]?(\d{1,6})")


def find_logs(path: Path, looks_right: Callable[[bytes], bool]) -> list[Path]:
    """The path itself, or the .txt, .log and .out files in a folder, whose first 64 KiB look
    right.
    """
    files = (
        [path]
        if path.is_file()
        else [path / name for name in file_names(path)[:_MAX_FILES] if name.endswith(_SUFFIXES)]
    )
    return [file for file in files if looks_right(_head(file))]


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_HEAD)
    except OSError:
        return b""


def rank_of(path: Path, default: int) -> int:
    """The rank that a file's name says."""
    digits = _RANK.search(path.stem)
    return int(digits[1]) if digits else default


class LogReader(Protocol):
    """What makes calls of the lines of logs, one process for each file."""

    calls: list[Call]
    problems: list[str]

    def add(self, path: Path, rank: int) -> None:
        """One file."""


def read_logs(
    path: Path, looks_right: Callable[[bytes], bool], reader: LogReader, *, what: str
) -> None:
    """Every log at a path given to the reader; FormatError saying that there is nothing of what
    when none holds a call.
    """
    for number, file in enumerate(find_logs(path, looks_right)):
        reader.add(file, rank_of(file, number))
    if not reader.calls:
        raise FormatError(path, reader.problems[0] if reader.problems else f"no {what} in it")


def take_lines(path: Path, take: Callable[[str], None], problems: list[str]) -> None:
    """Each line of a file given to take; what ends the reading is added to problems."""
    try:
        for line in lines_of(path):
            take(line)
    except FormatError as error:
        problems.append(str(error))


def lines_of(path: Path) -> Iterator[str]:
    """Lines without their ends; longer ones than 1 MiB are left out. FormatError for a file that
    cannot be read or is over 1 GiB.
    """
    try:
        if path.stat().st_size > _SIZE_LIMIT:
            raise FormatError(path, "a text of more than 1 GiB is not read; cut it into steps")
        with path.open("rb") as stream:
            while piece := stream.readline(_LINE_LIMIT):
                if not piece.endswith(b"\n") and len(piece) == _LINE_LIMIT:
                    _skip(stream.readline)
                    continue
                yield piece.rstrip(b"\r\n").decode("utf-8", "replace")
    except OSError as error:
        raise FormatError(path, f"cannot be read ({error.strerror})") from error


def _skip(readline: Callable[[int], bytes]) -> None:
    while piece := readline(_LINE_LIMIT):
        if piece.endswith(b"\n"):
            return
