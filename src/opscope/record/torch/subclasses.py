# SPDX-License-Identifier: Apache-2.0
"""Tensors of subclasses below a dispatch mode.

`as_subclass` makes an alias and gives it another class. Below any mode, one that does nothing too,
torch 2.4 finds that the alias has an object of Python already and raises in the program, in every
function of a subclass; later ones do not.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opscope.record.exits import restore

NAME = "as_subclass"
HAS_NO_DISPATCH = torch._C._disabled_torch_dispatch_impl


def allow_subclasses(stack: ExitStack) -> None:
    """Have tensors take the class of a subclass where this torch refuses it below a mode, until the
    stack is closed.
    """
    genuine = torch.Tensor.as_subclass
    if not _refused():
        return

    @functools.wraps(genuine)
    def as_subclass(tensor: torch.Tensor, cls: Any) -> Any:
        if type(tensor).__torch_dispatch__ is not HAS_NO_DISPATCH:
            return genuine(tensor, cls)
        with torch._C._DisableTorchDispatch():
            return genuine(tensor, cls)

    torch.Tensor.as_subclass = as_subclass  # type: ignore[method-assign, assignment]
    stack.callback(restore, torch.Tensor, NAME, as_subclass, genuine)


class _Probe(torch.Tensor):
    pass


class _Nothing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _refused() -> bool:
    tensor = torch.empty(0)
    with _Nothing():  # type: ignore[no-untyped-call]
        try:
            tensor.as_subclass(_Probe)
        except RuntimeError:
            return True
    return False
