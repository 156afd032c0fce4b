# SPDX-License-Identifier: Apache-2.0
"""Keeps torch.compile away from opscope's own functions, which run between the pieces that a
program's compiled function broke into.

torch would take each of them for a part of the program: compile it, count it among its frames, warn
of what it cannot trace.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import FunctionType
from typing import Any

import torch

from opscope.record.torch.imports import once_imported

MARKS = "set_code_exec_strategy"
RULES = "torch._dynamo.trace_rules"


def leave_uncompiled(*owners: type | Callable[..., Any]) -> None:
    """torch's compiler takes neither these functions, or those of these classes, nor what they
    call.
    """
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if not hasattr(frames, MARKS):
        return  # a torch before 2.7
    skip = frames._FrameAction.SKIP
    for owner in owners:
        for function in functions(owner):
            frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


def leave_package_uncompiled(stack: ExitStack) -> None:
    """The same of all of opscope, where this torch cannot be told of single functions. The compiler
    is not loaded for it.
    """
    if not hasattr(getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None), MARKS):
        once_imported(RULES, lambda: sys.modules[RULES].add("opscope"), stack)


def functions(owner: type | Callable[..., Any]) -> Iterator[FunctionType]:
    """A function, or those that a class defines."""
    for value in vars(owner).values() if isinstance(owner, type) else (owner,):
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if isinstance(function, FunctionType):
            yield function
