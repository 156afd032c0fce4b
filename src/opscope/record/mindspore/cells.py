# SPDX-License-Identifier: Apache-2.0
"""Which Cells are running: each call of a Cell, and the names by which Cells hold one another.

MindSpore has hooks for single Cells only, and compiles those into graphs. So nn.Cell's __call__ is
wrapped: what it is given and what it returns pass through untouched, and the source of construct,
which the compiler reads, stays as it is.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol

import msgspec


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """A Cell that is running: its path, the number of its row, the step it began in, whether it is
    an optimizer.
    """

    cell: Any
    module: str
    index: int
    step: int = 0
    optimizer: bool = False


class Watcher(Protocol):
    """Who is told of Cells; neither call may raise."""

    def enter(self, cell: Any, args: tuple[Any, ...]) -> Scope | None: ...
    def leave(self, scope: Scope | None, result: Any, error: BaseException | None) -> None: ...


def watch_cells(cell_class: Any, watcher: Watcher) -> Callable[[], None]:
    """Tell the watcher of every call of a Cell from now on; the answer takes that back."""
    original = cell_class.__call__

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope = watcher.enter(self, args)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            watcher.leave(scope, None, error)
            raise
        watcher.leave(scope, result, None)
        return result

    cell_class.__call__ = call

    def back() -> None:
        if cell_class.__call__ is call:
            cell_class.__call__ = original

    return back


def path_below(outer: Scope | None, cell: Any) -> str:
    """Path of a Cell that the outer one calls; the outermost is the root, with an empty path."""
    if outer is None:
        return ""
    name = next((name for name, inner in _named(outer.cell) if inner is cell), type(cell).__name__)
    return f"{outer.module}.{name}" if outer.module else name


def _named(cell: Any) -> Iterator[tuple[str, Any]]:
    """Cells inside a Cell, by their path from it, nearest first."""
    waiting = [("", cell)]
    while waiting:
        prefix, outer = waiting.pop(0)
        for name, inner in getattr(outer, "_cells", {}).items():
            path = f"{prefix}{name}"
            yield path, inner
            if inner is not None:
                waiting.append((f"{path}.", inner))


def operator_of(cell: Any) -> str:
    """What a Cell's row is called: mindspore.nn.Dense, or the user's class with its module."""
    kind = type(cell)
    return (
        f"mindspore.nn.{kind.__name__}"
        if kind.__module__.startswith("mindspore.nn.")
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def live_optimizers(classes: tuple[type, ...]) -> set[Hashable]:
    """Optimizers of the program, by identity."""
    return {id(candidate) for candidate in gc.get_objects() if issubclass(type(candidate), classes)}
