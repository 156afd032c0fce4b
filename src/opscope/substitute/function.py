# SPDX-License-Identifier: Apache-2.0
"""Substitute `function`: a function of the user's, such as an older version of the operator, by its
import path.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opscope.errors import UsageError
from opscope.substitute.arguments import Conditions
from opscope.substitute.perform import perform

if TYPE_CHECKING:
    from collections.abc import Callable

    from opscope.substitute.perform import Bound, Performed


class Function:
    """`package.module:name`, called with the operator's own arguments; what an in-place operator
    writes it writes too.
    """

    name = "function"

    def __init__(self, path: str) -> None:
        self.path = path
        self._function: Callable[..., Any] | None = None

    def lacks(self, op: str) -> str | None:  # noqa: ARG002 - the user says what it serves
        return None

    @property
    def function(self) -> Callable[..., Any]:
        """The function, imported when it is first needed; UsageError when it is not there."""
        if self._function is None:
            self._function = imported(self.path)
        return self._function

    def run(self, bound: Bound) -> Performed:
        return perform(bound, Conditions(), self.function)


def imported(path: str) -> Callable[..., Any]:
    """What `package.module:name` names; the current directory is looked into last."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise UsageError(f"function {path!r}: write package.module:name")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        reached: Any = importlib.import_module(module)
        for part in name.split("."):
            reached = getattr(reached, part)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise UsageError(f"function {path!r}: {error}") from error
    if not callable(reached):
        raise UsageError(f"function {path!r} is a {type(reached).__name__}, not a function")
    return reached  # type: ignore[no-any-return]
