# SPDX-License-Identifier: Apache-2.0
"""The kinds of substitute. A new kind is one module with one class, and one line here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

from opscope.errors import UsageError

if TYPE_CHECKING:
    from opscope.substitute.perform import Bound, Performed


class Substitute(Protocol):
    """Another way to execute one call; outputs come under the same slots as the operator's own."""

    @property
    def name(self) -> str: ...

    def lacks(self, op: str) -> str | None:
        """Why this operator cannot be substituted, None when it can."""
        ...

    def run(self, bound: Bound) -> Performed:
        """Execute the call on memory of its own; element types may be wider than the recorded
        ones.
        """
        ...


# Kind -> the module that holds it and the class there. "function" takes the import path after a
# colon.
KINDS: dict[str, tuple[str, str]] = {
    "cpu": ("opscope.substitute.cpu", "Cpu"),
    "float64": ("opscope.substitute.wider", "Float64"),
    "float32": ("opscope.substitute.wider", "Float32"),
    "decomposition": ("opscope.substitute.decomposition", "Decomposition"),
    "function": ("opscope.substitute.function", "Function"),
}


def kind_named(text: str) -> tuple[str, str]:
    """Kind and argument of `cpu`, `function:package.module:name`; UsageError for one that there is
    not.
    """
    kind, _, argument = text.strip().partition(":")
    if kind not in KINDS:
        raise UsageError(f"substitute {text!r}: not one of {', '.join(KINDS)}")
    if (kind == "function") != bool(argument):
        wanted = "function:package.module:name" if kind == "function" else kind
        raise UsageError(f"substitute {text!r}: write {wanted}")
    return kind, argument


def substitute_named(text: str) -> Substitute:
    """The substitute of this kind; UsageError for one that there is not."""
    kind, argument = kind_named(text)
    module, name = KINDS[kind]
    made = getattr(importlib.import_module(module), name)
    substitute: Substitute = made(argument) if argument else made()
    return substitute
