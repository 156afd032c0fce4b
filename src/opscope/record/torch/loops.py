# SPDX-License-Identifier: Apache-2.0
"""Where a loop that trains tensors by hand begins anew: after a backward pass the program is at an
earlier place of a frame that had called the pass.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType

from opscope.record.own_code import OPSCOPE, inside, is_user
from opscope.record.torch.stacks import ENGINE, TORCH

Path = list[tuple[CodeType, int]]  # frames of the program's own, outermost first


class Loops:
    """Calls `begins` where the main thread's program comes back, which then is at a new iteration.

    A pass that keeps its graph is one of several over it, as the rows of a Jacobian are, and one
    after which nothing is computed adds to gradients that another will add to: they end nothing.
    """

    def __init__(self, begins: Callable[[], None]) -> None:
        self._begins = begins
        self._called: Path = []
        self._computed = False  # since the pass

    def pass_begins(self) -> bool:
        """A backward pass is under way, in whatever thread; whether the program may come back from
        it.
        """
        frame = main_frame()
        while frame is not None and frame.f_code.co_name != ENGINE:
            frame = frame.f_back
        caller = frame.f_back if frame is not None else None
        ends = caller is not None and not caller.f_locals.get("retain_graph", True)
        self._called, self._computed = path_of(caller) if ends else [], False
        return bool(self._called)

    def came_back(self) -> bool:
        """The program calls an operator after a pass; whether it has come back for that."""
        if threading.get_ident() != threading.main_thread().ident:
            return False
        back, computed = earlier(path_of(main_frame()), self._called), self._computed
        self._computed = True
        if back and computed:
            self._begins()
        return back


def main_frame() -> FrameType | None:
    """Where the main thread is."""
    main = threading.main_thread().ident
    if threading.get_ident() == main:
        return sys._getframe(1)
    return sys._current_frames().get(main or 0)


def path_of(frame: FrameType | None) -> Path:
    """The calls of the program's own code that are under way, from the outermost inwards."""
    found: Path = []
    while frame is not None:
        file = frame.f_code.co_filename
        if is_user(file) and not inside(file, OPSCOPE) and not inside(file, TORCH):
            found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return found[::-1]


def earlier(now: Path, before: Path) -> bool:
    """Whether one path parts from another to an earlier place of the same frame."""
    for (code, at), (known, was) in zip(now, before, strict=False):
        if code is not known or at != was:
            return code is known and at < was
    return False
