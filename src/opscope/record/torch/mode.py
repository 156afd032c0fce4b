# SPDX-License-Identifier: Apache-2.0
"""The modes that see calls: every dispatcher operator, and on request every torch function."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

from opscope.run.contain import contain

if TYPE_CHECKING:
    from opscope.record.session import Session


class Recorder(Protocol):
    """What modes ask of the recorder."""

    @property
    def book(self) -> Any:
        """Its bookkeeping, which handles every operator."""

    @property
    def session(self) -> Session:
        """The recording it belongs to."""

    def api(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make a call of one of torch's functions and record it."""


def _uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that torch.compile leaves as it is where it runs a program's frames one by one,
    with all that it calls: a handler that is compiled again for every function of torch may be
    given what was compiled for another one (seen with 2.13: a mask of integers).
    """
    frames, code = torch._C._dynamo.eval_frame, getattr(function, "__code__", None)
    if code is None:  # written in C
        return function
    try:
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
    except AttributeError:  # an older torch
        frames.skip_code(code)  # type: ignore[attr-defined]
    return function


class WatchingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that leaves torch.compile alone; a subclass gives its handler to `handle`."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this a dispatch mode disables compilation in silence."""
        return True

    def handle(self, handler: Callable[..., Any]) -> None:
        """Let handler see every call.

        torch looks it up on the instance. One that the class defines is wrapped by torch's
        compiler, which takes seconds to load; the instance's own is not.
        """
        _uncompiled(getattr(handler, "__func__", handler))
        self.__torch_dispatch__ = handler  # type: ignore[method-assign]


class OperatorMode(WatchingMode):
    """Sees every operator that reaches the dispatcher, forward and backward."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder = recorder
        # A C function saves a Python frame a call, and dynamo cannot trace it.
        self.handle(MethodType(recorder.book.dispatch, self))


class ApiMode(TorchFunctionMode):
    """Sees calls of torch's Python functions; opt-in, since its presence alone switches eval fast
    paths off.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    @_uncompiled
    def __torch_function__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if torch.compiler.is_compiling() or not self.recorder.book.active:
            return func(*args, **(kwargs or {}))
        name = contain(self.recorder.session.fail, resolve_name, func)
        if name is None or (name.rpartition(".")[2].startswith("__") and name.endswith("__get__")):
            return func(*args, **(kwargs or {}))
        return self.recorder.api(name, func, args, kwargs or {})
