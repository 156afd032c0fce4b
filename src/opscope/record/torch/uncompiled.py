# SPDX-License-Identifier: Apache-2.0
"""Keeps torch.compile away from opscope's own functions, which run between the pieces that a
program's compiled function broke into.

torch would take each of them for a part of the program: compile it, count it among its frames, warn
of what it cannot trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch


def leave_uncompiled(*owners: type | Callable[..., Any]) -> None:
    """torch's compiler takes neither these functions, or those of these classes, nor what they
    call.
    """
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if not hasattr(frames, "set_code_exec_strategy"):
        return  # a torch before 2.7
    skip = frames._FrameAction.SKIP
    for owner in owners:
        for function in functions(owner):
            frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


def functions(owner: type | Callable[..., Any]) -> Iterator[FunctionType]:
    """A function, or those that a class defines."""
    for value in vars(owner).values() if isinstance(owner, type) else (owner,):
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if isinstance(function, FunctionType):
            yield function
