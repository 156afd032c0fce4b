# SPDX-License-Identifier: Apache-2.0
"""Models that were exported and compiled before, and are loaded from a package (AOTInductor): each
call is the call of a graph, of which nothing is known but what it is given and what it gives.

Public names do not reach that call: it is a method of what `torch._inductor.aoti_load_package`
gives (torch 2.13), so the class is watched.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

from torch.utils import _pytree as pytree

from opscope.record.exits import restore
from opscope.record.torch.imports import once_imported

MODULE = "torch.export.pt2_archive._package"
OWNER = "AOTICompiledModel"


class Watcher(Protocol):
    """Who makes the calls of loaded models."""

    @property
    def watching(self) -> bool: ...

    def call_package(self, model: object, given: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        """Make the call of a model with these inputs, flat; call gives its result."""
        ...


def watch_packages(stack: ExitStack, watcher: Watcher) -> None:
    """Have a watcher make the calls of loaded models from now on, until the stack is closed. What
    loads them is not loaded for it; a torch without the class has no such models.
    """

    def begin() -> None:
        owner = getattr(sys.modules[MODULE], OWNER, None)
        if owner is None:
            return
        previous = owner.__call__

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if not watcher.watching:
                return previous(self, *args, **kwargs)
            given = tuple(pytree.tree_leaves((args, kwargs)))
            return watcher.call_package(self, given, lambda: previous(self, *args, **kwargs))

        owner.__call__ = __call__
        stack.callback(restore, owner, "__call__", __call__, previous)

    once_imported(MODULE, begin, stack)
