# SPDX-License-Identifier: Apache-2.0
"""The modes that see calls: every dispatcher operator, and on request every torch function."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from opscope.record.torch.recorder import TorchRecorder


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator that reaches the dispatcher, forward and backward, and leaves torch.compile alone."""

    supports_higher_order_operators = True

    def __init__(self, recorder: TorchRecorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # torch looks the handler up on the instance; a C function there saves a Python frame a call, and dynamo cannot trace it.
        self.__torch_dispatch__ = MethodType(recorder.book.dispatch, self)  # type: ignore[method-assign]

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this a dispatch mode disables compilation in silence."""
        return True


class ApiMode(TorchFunctionMode):
    """Sees calls of torch's Python functions; opt-in, since its presence alone switches eval fast paths off."""

    def __init__(self, recorder: TorchRecorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.compiler.is_compiling():
            return func(*args, **(kwargs or {}))
        name = resolve_name(func)
        if name is None or (name.rpartition(".")[2].startswith("__") and name.endswith("__get__")):
            return func(*args, **(kwargs or {}))
        return self.recorder.api(name, func, args, kwargs or {})
