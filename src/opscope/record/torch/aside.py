# SPDX-License-Identifier: Apache-2.0
"""Where opscope itself uses torch inside a program's call: nothing that the program listens with
hears of it.

A program may have modes below ours (fake tensors, functionalisation, a graph in the making),
function modes, a profiler, and subclasses that answer every function. What opscope reads, copies
and stores would reach them, appear in what they make, or raise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import _disable_current_modes

Function = TypeVar("Function", bound=Callable[..., Any])
PLAIN = (torch.Tensor, torch.nn.Parameter)
TensorBase: Any = (
    torch._C.TensorBase
)  # its methods stay torch's own, whatever a program makes of torch.Tensor's


def aside() -> AbstractContextManager[Any]:
    """Use torch with the program's modes, functions of subclasses, traces and profiler out of the
    way; grad mode stays.
    """
    if (
        torch._C._len_torch_dispatch_stack()
        or torch._C._autograd._profiler_enabled()
        or torch._C._get_tracing_state() is not None
    ):
        return far_aside()
    return torch._C.DisableTorchFunction()  # of modes and of subclasses


@contextmanager
def far_aside() -> Iterator[None]:
    """The same where the program has more in the way than functions."""
    with ExitStack() as stack:
        stack.enter_context(torch._C.DisableTorchFunction())
        if torch._C._len_torch_dispatch_stack():  # the import behind it takes a second
            stack.enter_context(_disable_current_modes())
        if torch._C._autograd._profiler_enabled():
            torch._C._autograd._enable_record_function(False)  # noqa: FBT003 - torch's
            stack.callback(torch._C._autograd._enable_record_function, True)  # noqa: FBT003 - torch's
        tracing = torch._C._get_tracing_state()
        if tracing is not None:
            torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
            stack.callback(torch._C._set_tracing_state, tracing)  # type: ignore[attr-defined]
        yield


def plainly(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor of no subclass, whatever methods and attributes its class
    redefines.
    """
    if type(tensor) in PLAIN:
        return tensor
    return TensorBase.as_subclass(TensorBase.detach(tensor), torch.Tensor)  # type: ignore[no-any-return]


def set_aside(function: Function) -> Function:
    """The same function, run aside."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with aside():
            return function(*args, **kwargs)

    return run  # type: ignore[return-value]
