# SPDX-License-Identifier: Apache-2.0
"""Where a primitive was called from, read off Python's stack: the Cells it runs in, the user's line, forward or gradient."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from types import FrameType
from typing import Any

import msgspec

LIBRARY = re.compile(r"(?:^|/)(?:site|dist)-packages/|(?:^|/)opscope/record/|(?:^|/)mindspore/python/mindspore/|^<")
CELL_FILE, CELL_CALL = "/nn/cell.py", "__call__"
GRADIENT = frozenset({"grad", "_pynative_func_grad_backward", "run_backward", "backward"})
GRADIENT_FILES = ("/graph/api.py", "/common/api.py", "/ops/composite/base.py", "/common/tensor.py")
DEEPEST = 200
MOST_FRAMES = 32


class Site(msgspec.Struct, frozen=True):
    """A place of the program: path of the innermost Cell, phase, "path:line" of the user's own code, frames innermost first."""

    module: str
    phase: str
    source: str | None
    frames: tuple[str, ...]


def site_of(frame: FrameType | None) -> Site:
    """The site of a call, given the frame it was made in."""
    cells: list[Any] = []
    frames: list[str] = []
    source, phase = None, "forward"
    for below in _outwards(frame):
        code = below.f_code
        path = code.co_filename.replace("\\", "/")
        if code.co_name == CELL_CALL and path.endswith(CELL_FILE):
            cells.append(below.f_locals.get("self"))
        elif code.co_name in GRADIENT and path.endswith(GRADIENT_FILES) and source is None:
            phase = "backward"
        if LIBRARY.search(path) is None:
            place = f"{path}:{below.f_lineno}"
            source = source or place
            if len(frames) < MOST_FRAMES:
                frames.append(f"{place} in {code.co_name}")
    return Site(path_of([cell for cell in reversed(cells) if cell is not None]), phase, source, tuple(frames))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(DEEPEST):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def path_of(cells: list[Any]) -> str:
    """Path of the last of these Cells, each called by the one before: the names they are held by; the first is the root."""
    names = []
    for outer, inner in pairwise(cells):
        names.append(next((name for name, cell in _named(outer) if cell is inner), type(inner).__name__))
    return ".".join(names)


def _named(cell: Any) -> Iterator[tuple[str, Any]]:
    """Cells inside a Cell, by their path from it, nearest first."""
    waiting = [("", cell)]
    while waiting:
        prefix, outer = waiting.pop(0)
        for name, inner in getattr(outer, "_cells", {}).items():
            path = f"{prefix}{name}"
            yield path, inner
            if inner is not None:
                waiting.append((f"{path}.", inner))


def caller(depth: int) -> FrameType | None:
    """The frame `depth` calls above the caller of this function; None beyond the outermost."""
    try:
        return sys._getframe(depth + 1)
    except ValueError:
        return None
