# SPDX-License-Identifier: Apache-2.0
"""What the program itself chose to have recorded, with `opscope.set_dump`; looked at when --set-dump is on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from opscope.errors import UsageError
from opscope.run.selection import Pattern, parse_selection


class Chosen:
    """Modules and operators chosen so far; the last word about each of them holds."""

    def __init__(self) -> None:
        self._modules: dict[int, tuple[weakref.ref[Any], bool]] = {}
        self._operators: dict[str, tuple[Pattern, bool]] = {}

    def choose(self, target: object, *, enabled: bool) -> None:
        """Choose a module (an object with `named_modules`) or an operator: its name, a PATTERN, or torch's overload of it.

        Raises UsageError for anything else.
        """
        if hasattr(target, "named_modules"):
            self._modules[id(target)] = (weakref.ref(target), enabled)
            return
        name = target if isinstance(target, str) else _operator_name(target)
        pattern = parse_selection(ops=name).ops
        if pattern is not None:
            self._operators[name] = (pattern, enabled)

    def wants(self, names: Iterable[str], name: str, module: str, path_of: Callable[[object], str | None]) -> bool:
        """Whether a call of these operator names, with its own name and module, was chosen.

        path_of gives the path of a module object, None while it is not known. Of nested choices the innermost holds.
        """
        depth, chosen = -1, False
        for reference, enabled in self._modules.values():
            found = reference()
            path = None if found is None else path_of(found)
            if path is not None and len(path) > depth and (path in {"", module} or module.startswith(f"{path}.")):
                depth, chosen = len(path), enabled
        operators = [enabled for pattern, enabled in self._operators.values() if any(pattern.matches(each, name, module) for each in names)]
        return operators[-1] if operators else chosen


def _operator_name(target: object) -> str:
    """The name of torch.ops.aten.bmm, or of torch.ops.aten.bmm.default."""
    for attribute in ("_qualified_op_name", "_name"):
        name = getattr(target, attribute, None)
        if isinstance(name, str):
            return name
    raise UsageError(f"set_dump: {target!r} is neither a module nor an operator; give an nn.Module, torch.ops.aten.bmm or its name")
