# SPDX-License-Identifier: Apache-2.0
"""Records MindSpore's PyNative mode: every primitive, forward and backward, through MindSpore's own
dispatch mode, and every Cell.

MsDispatchMode (MindSpore 2.10) calls back for each primitive that PyNative runs, those of the
gradient included; earlier versions have no such hook, and only what they compile is recorded, by
the dump. What is compiled (@jit, optimizers) comes from the dump, and is taken into the same tables
(compiled.py).
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Hashable
from typing import Any

from opscope.record.mindspore.book import Book, Noted
from opscope.record.mindspore.cells import Scope, live_optimizers, watch_cells
from opscope.record.mindspore.frames import caller, site_of
from opscope.record.mindspore.reading import arguments_text, attributes_of, plain_call, tensors_in
from opscope.run.contain import contain


class PyNative:
    """What MindSpore's callbacks do: nothing here raises into the program but its own errors.

    settle waits for the kernels that were given to MindSpore, and raises what they raised.
    MindSpore tells an error to the first
    that waits: were it the recorder, reading a tensor, the program would never hear of it.
    """

    def __init__(
        self,
        book: Book,
        tensor_class: type,
        optimizer_classes: Callable[[], tuple[type, ...]],
        *,
        compiles: Callable[[], bool],
        raised: Callable[[BaseException], None] = lambda error: None,  # noqa: ARG005
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self.book = book
        self._raised, self._settle = raised, settle
        self._tensor, self._optimizers, self._compiles = tensor_class, optimizer_classes, compiles
        self._inside = threading.local()

    # -- primitives --------------------------------------------------------------------------------

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """One primitive under observation."""
        # Names in small letters are steps of the compiler (typeof), no primitives.
        watched = func.name[:1].isupper() and not self._busy and self.book.observing
        if watched:
            self._settle()
        noted: Noted | None = (
            self._guarded(self._note, func.name, args, caller(2)) if watched else None
        )
        try:
            result = func(*args, **(kwargs or {}))
            if noted is not None:
                self._settle()
        except BaseException as error:
            if noted is not None:
                self._guarded(self.book.add, noted, (), f"{type(error).__name__}: {error}"[:4000])
                self._guarded(self.book.leave, noted)
            raise
        if noted is not None:
            self._guarded(
                lambda: self.book.add(noted, list(tensors_in(result, self._tensor)), None)
            )
            self._guarded(self.book.leave, noted)
        return result

    def _note(self, name: str, args: Any, frame: Any) -> Noted | None:
        site = site_of(frame)
        operands = plain_call(args)
        before = self.book.before(list(tensors_in(operands, self._tensor)))
        self._claim()
        self.book.take_compiled()
        self.book.turn(site)
        if not self.book.wanted(name, site.phase):
            return None
        return self.book.enter(
            Noted(name, site, arguments_text(operands, self._tensor, attributes_of(args)), before)
        )

    # -- Cells -------------------------------------------------------------------------------------

    def enter(self, cell: Any, args: tuple[Any, ...]) -> Scope | None:
        """A Cell is called; in graph mode it is compiled, and no row of ours."""
        if self._busy or not self.book.observing or self._compiles():
            return None
        self._settle()
        scope: Scope | None = self._guarded(self._enter, cell, args)
        return scope

    def _enter(self, cell: Any, args: tuple[Any, ...]) -> Scope:
        self._claim()
        self.book.take_compiled()
        optimizer = isinstance(cell, self._optimizers())
        if not optimizer and not self.book.scopes:
            self.book.turn(site_of(caller(3)))
        return self.book.enter_cell(cell, list(tensors_in(args, self._tensor)), optimizer=optimizer)

    def leave(self, scope: Scope | None, result: Any, error: BaseException | None) -> None:
        """The Cell has returned, or raised."""
        if self._busy:
            return
        if error is None and scope is not None:
            try:
                self._settle()
            except BaseException as late:
                self.leave(scope, None, late)
                raise
        if error is not None:
            self._raised(error)
        text = None if error is None else f"{type(error).__name__}: {error}"[:4000]
        if not self.book.active:
            self._guarded(self.book.drop_compiled)
        elif scope is None:
            self._guarded(self.book.take_compiled)
        else:
            self._guarded(
                lambda: self.book.leave_cell(
                    scope, list(tensors_in(result, self._tensor)), site_of(caller(3)), text
                )
            )

    # -- inner -------------------------------------------------------------------------------------

    @property
    def _busy(self) -> bool:
        return bool(getattr(self._inside, "busy", False))

    def _claim(self) -> None:
        """With the first row the dump of compiled parts is this process's to take."""
        if self.book.compiled is not None and not self.book.compiled.own:
            self.book.compiled.claim(counts=self._compiles())

    def _guarded(self, action: Callable[..., Any], *arguments: Any) -> Any:
        self._inside.busy = True
        try:
            return contain(self.book.give_up, action, *arguments)
        finally:
            self._inside.busy = False


def optimizers() -> set[Hashable]:
    """Optimizers that the program has, by identity."""
    return live_optimizers(optimizer_classes())


def optimizer_classes() -> tuple[type, ...]:
    """Base classes of MindSpore's optimizers, as far as the program has imported them."""
    homes = ("mindspore.nn.optim.optimizer", "mindspore.experimental.optim.optimizer")
    bases = (getattr(sys.modules.get(home), "Optimizer", None) for home in homes)
    return tuple(kind for kind in bases if isinstance(kind, type))


def synchronize() -> None:
    """Wait until MindSpore has done what it was given."""
    from mindspore import context, runtime
    from mindspore.graph.api import _pynative_executor

    if context.get_context("device_target") == "CPU":  # runtime.synchronize refuses it
        _pynative_executor.sync()
    else:
        runtime.synchronize()


def start(book: Book, raised: Callable[[BaseException], None]) -> Callable[[], None]:
    """Record from now on, in every thread MindSpore dispatches from, until the program ends or the
    answer is called.

    raised is told of exceptions that leave a Cell, and of the one that ends the program.
    ImportError before MindSpore 2.10.
    """
    from mindspore import Tensor, context, nn
    from mindspore.graph.api import _pynative_executor
    from mindspore.utils import MsDispatchMode

    def compiles() -> bool:
        return bool(context.get_context("mode") == context.GRAPH_MODE)

    pynative = PyNative(
        book,
        Tensor,
        optimizer_classes,
        compiles=compiles,
        raised=raised,
        settle=_pynative_executor.sync,
    )

    class Recorder(MsDispatchMode):  # type: ignore[misc]
        """MindSpore's callback for one primitive."""

        def __ms_dispatch__(self, func: Any, args: Any = (), kwargs: Any = None) -> Any:
            return pynative.run(func, args, kwargs)

    mode = Recorder()
    mode.__enter__()
    back = watch_cells(nn.Cell, pynative)
    owner = os.getpid()
    over = threading.Event()

    def end() -> None:
        if over.is_set():
            return
        over.set()
        back()
        mode.__exit__(None, None, None)  # MindSpore dies when the mode outlives the interpreter
        if os.getpid() == owner:
            last = getattr(sys, "last_value", None)
            if last is not None:
                contain(book.give_up, raised, last)
            contain(book.give_up, book.close)

    atexit.register(end)
    return end
