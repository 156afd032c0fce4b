# SPDX-License-Identifier: Apache-2.0
"""Which gradient formula written in Python was running when the process died in it, or when it
raised.

What such a formula calls is recorded like any operator, the formula itself is no call of an
operator. While it runs it stands in a black box of its own, which outlives the process; one that
raises becomes a row. Nothing is written for those that return.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from opscope.run.contain import contain
from opscope.run.store.blackbox import BlackBox, Facts, blackbox_text
from opscope.run.store.layout import FORMULAS

METHODS = ("apply", "apply_boxed")


class Formulas:
    """Watches the backward functions of torch.autograd.Function, those of torch.library's operators
    among them.

    watched says whether calls are recorded now, step which one is under way; raised is told of a
    formula by name with its error, failed of what the watching itself raised.
    """

    def __init__(
        self,
        directory: Path,
        *,
        watched: Callable[[], bool],
        step: Callable[[], int],
        raised: Callable[[str, str], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.directory = directory
        self.watched = watched
        self.step = step
        self.raised = raised
        self.failed = failed
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._box: BlackBox | None = None
        self._genuine: dict[str, Any] = {}

    def install(self) -> None:
        for name in METHODS:
            genuine = getattr(BackwardCFunction, name, None)
            if genuine is not None:
                self._genuine[name] = genuine
                setattr(BackwardCFunction, name, self._watching(genuine))

    def remove(self) -> None:
        for name, genuine in self._genuine.items():
            setattr(BackwardCFunction, name, genuine)
        self._genuine.clear()

    def _watching(self, genuine: Callable[..., Any]) -> Callable[..., Any]:
        def apply(node: Any, *args: Any) -> Any:
            if os.getpid() != self._pid or torch.compiler.is_compiling() or not self.watched():
                return genuine(node, *args)
            entered = contain(self.failed, self._enter, node)
            try:
                return genuine(node, *args)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"[:4000]
                contain(self.failed, lambda: self.raised(named(type(node))[0], text))
                raise
            finally:
                if entered is not None:
                    contain(self.failed, entered.leave, id(node), threading.get_ident())

        return apply

    def _enter(self, node: Any) -> BlackBox:
        op, source = named(type(node))
        with self._lock:
            if self._box is None:
                self._box = BlackBox.create(self.directory / FORMULAS)
        text = blackbox_text(op, op, None, source)
        self._box.enter(
            id(node),
            threading.get_ident(),
            text,
            Facts(step=self.step(), level="operator", phase="backward"),
        )
        return self._box


def named(node: type) -> tuple[str, str | None]:
    """What a formula is called, and the line of the program where it is written.

    That of an operator `mine::act` is `mine::act_backward`, that of a class `models.Act` is
    `models.Act.backward`.
    """
    function = node._forward_cls  # type: ignore[attr-defined]
    captured = [
        cell.cell_contents
        for method in (function.forward, function.backward)
        for cell in getattr(method, "__closure__", None) or ()
    ]
    op = next((each for each in captured if isinstance(each, torch._ops.OpOverload)), None)
    formula = next(
        (each._backward_fn for each in captured if getattr(each, "_backward_fn", None) is not None),
        function.backward,
    )
    code: CodeType | None = getattr(formula, "__code__", None)
    source = None if code is None else f"{code.co_filename}:{code.co_firstlineno}"
    if op is None:
        return f"{function.__module__}.{function.__qualname__}.backward", source
    return f"{op._schema.name}_backward.{op._overloadname}", source
