# SPDX-License-Identifier: Apache-2.0
"""Modules of torch that are watched, and that the program may import late or never."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack

from opscope.record.bootstrap.sitecustomize import AfterImport


def once_imported(module: str, begin: Callable[[], None], stack: ExitStack) -> None:
    """Call back at once if a module has been imported, else once it is, until the stack is closed.
    It is not imported for that.
    """
    if module in sys.modules:
        begin()
        return
    after = AfterImport([module], lambda _: begin())  # type: ignore[no-untyped-call] # old interpreters read it
    sys.meta_path.insert(0, after)
    stack.callback(lambda: sys.meta_path.remove(after) if after in sys.meta_path else None)
