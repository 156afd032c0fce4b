# SPDX-License-Identifier: Apache-2.0
"""Graphs that MindSpore's own dump cannot hold: complex numbers make it raise while the graph is
compiled (2.10).

The dump cannot be switched off again, and nothing of the graph has run. So the same function runs
in PyNative mode from then on, where each primitive calls back and is recorded; the program's mode
is as it was before and after.
"""

from __future__ import annotations

import functools
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opscope.formats.mindspore.failed import first_paragraph

_DUMP_CODE = re.compile(
    r"\bccsrc/(tools|debug|[\w/]*/debug)/(data_dump|debugger|[\w/]*dump)[\w/]*\.(cc|h):\d+"
)
_COMPILERS = frozenset({"compile", "compile_and_run"})
Call = Callable[..., Any]


def raised_by_dump(error: BaseException) -> bool:
    """Whether MindSpore's dump raised this while a graph was compiled, by the C++ file its message
    names.
    """
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_name in _COMPILERS:
            return _DUMP_CODE.search(str(error)) is not None
        traceback = traceback.tb_next
    return False


class Undumped:
    """The functions of a program whose graphs the dump refused; eager is a context in which
    MindSpore compiles nothing.
    """

    def __init__(self, eager: Callable[[], Any]) -> None:
        self._eager = eager
        self._refused: weakref.WeakSet[Any] = weakref.WeakSet()

    def run(self, owner: Any, compiled: Callable[[], Any], plain: Callable[[], Any]) -> Any:
        """What compiled() gives; plain() instead, eagerly, where the dump refuses the graph of this
        owner.
        """
        if owner not in self._refused:
            try:
                return compiled()
            except Exception as error:
                if not raised_by_dump(error):
                    raise
                self._refused.add(owner)
                name = getattr(owner, "__qualname__", type(owner).__qualname__)
                print(
                    f"opscope: MindSpore's dump fails on the graph of {name} "
                    f"({first_paragraph(str(error))}): it runs in PyNative mode, "
                    "recorded primitive by primitive; numbers may differ from the graph's in "
                    "the last bit",
                    file=sys.stderr,
                )
        with self._eager():
            return plain()


def survive_dump() -> Callable[[], None]:
    """Keep MindSpore's dump from ending this program; the answer takes that back. ImportError
    before MindSpore 2.10.
    """
    from mindspore import context, nn
    from mindspore.graph.api import _JitExecutor

    return survive(Undumped(lambda: pynative_mode(context)), nn.Cell, _JitExecutor)


def survive(undumped: Undumped, cell_class: Any, executor_class: Any) -> Callable[[], None]:
    """Let every Cell and every @jit function of the program run, whatever the dump makes of its
    graph; the answer takes that back.
    """
    cell_call, jit_call = cell_class.__call__, executor_class.__call__

    @functools.wraps(cell_call)
    def call_cell(self: Any, *args: Any, **kwargs: Any) -> Any:
        return undumped.run(self, *(2 * (functools.partial(cell_call, self, *args, **kwargs),)))

    @functools.wraps(jit_call)
    def call_jit(self: Any, *args: Any, **kwargs: Any) -> Any:
        function = getattr(self.fn, "__func__", self.fn)  # one executor lives for a call only
        return undumped.run(
            function,
            functools.partial(jit_call, self, *args, **kwargs),
            functools.partial(self.fn, *args, **kwargs),
        )

    return _replaced((cell_class, call_cell), (executor_class, call_jit))


def _replaced(*pairs: tuple[Any, Call]) -> Callable[[], None]:
    before = [(kind, kind.__call__) for kind, _ in pairs]
    for kind, call in pairs:
        kind.__call__ = call

    def back() -> None:
        for (kind, call), (_, original) in zip(pairs, before, strict=True):
            if kind.__call__ is call:
                kind.__call__ = original

    return back


@contextmanager
def pynative_mode(context: Any) -> Iterator[None]:
    """Run a block in PyNative mode; context is mindspore.context."""
    before = context.get_context("mode")
    context.set_context(mode=context.PYNATIVE_MODE)
    try:
        yield
    finally:
        context.set_context(mode=before)
