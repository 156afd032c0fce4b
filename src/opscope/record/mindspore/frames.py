# SPDX-License-Identifier: Apache-2.0
"""Where a primitive was called from, read off Python's stack: the user's line, forward, gradient or
optimizer.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import FrameType

import msgspec

LIBRARY = re.compile(
    r"(?:^|/)(?:site|dist)-packages/|(?:^|/)opscope/record/|(?:^|/)mindspore/python/mindspore/|^<"
)
GRADIENT = frozenset({"grad", "_pynative_func_grad_backward", "run_backward", "backward"})
GRADIENT_FILES = ("/graph/api.py", "/common/api.py", "/ops/composite/base.py", "/common/tensor.py")
OPTIMIZER = re.compile(r"/mindspore/(?:nn/optim|experimental/optim|mint/optim)/")
DEEPEST = 200
MOST_FRAMES = 32


class Site(msgspec.Struct, frozen=True):
    """A place of the program: phase, "path:line" of the user's own code, frames innermost first."""

    phase: str
    source: str | None
    frames: tuple[str, ...]


def site_of(frame: FrameType | None) -> Site:
    """The site of a call, given the frame it was made in."""
    frames: list[str] = []
    source, phase = None, "forward"
    for below in _outwards(frame):
        code = below.f_code
        path = code.co_filename.replace("\\", "/")
        if source is None and code.co_name in GRADIENT and path.endswith(GRADIENT_FILES):
            phase = "backward"
        elif source is None and OPTIMIZER.search(path) is not None:
            phase = "optimizer"
        if LIBRARY.search(path) is None:
            line = f"{path}:{below.f_lineno}"
            source = source or line
            if len(frames) < MOST_FRAMES:
                frames.append(f"{line} in {code.co_name}")
    return Site(phase, source, tuple(frames))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(DEEPEST):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def caller(depth: int) -> FrameType | None:
    """The frame `depth` calls above the caller of this function; None beyond the outermost."""
    try:
        return sys._getframe(depth + 1)
    except ValueError:
        return None
