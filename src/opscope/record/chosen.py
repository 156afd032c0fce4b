# SPDX-License-Identifier: Apache-2.0
"""What the program itself chose to have recorded, with `opscope.set_dump`; looked at when
--set-dump is on.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from opscope.errors import UsageError
from opscope.run.contain import contain, reason, tell
from opscope.run.selection import Pattern, parse_selection


class Choices(msgspec.Struct, frozen=True):
    """What was chosen in words: paths of Cells and patterns of operators, each with whether it is
    wanted.
    """

    scopes: dict[str, bool] = {}
    operators: dict[str, bool] = {}


class Chosen:
    """Modules and operators chosen so far; the last word about each of them holds."""

    def __init__(self) -> None:
        self._modules: dict[int, tuple[weakref.ref[Any], bool]] = {}
        self._operators: dict[str, tuple[Pattern, bool]] = {}
        self._scopes: dict[
            str, bool
        ] = {}  # paths of Cells, by which kernels of compiled graphs know them
        # asked after each choice: another process takes the dump in
        self.tell: Callable[[], None] | None = None

    def choose(self, target: object, *, enabled: bool) -> None:
        """Choose a module (torch's or MindSpore's), or an operator: its name, a PATTERN, torch's
        overload or MindSpore's primitive.

        Raises UsageError for anything else.
        """
        if hasattr(target, "named_modules") or hasattr(target, "cells_and_names"):
            self._modules[id(target)] = (weakref.ref(target), enabled)
            if hasattr(target, "cells_and_names"):
                self._scopes[path_from_the_root(target)] = enabled
        else:
            self._choose_operator(
                target if isinstance(target, str) else _operator_name(target), enabled=enabled
            )
        if self.tell is not None:
            contain(_untold, self.tell)

    def _choose_operator(self, name: str, *, enabled: bool) -> None:
        pattern = parse_selection(ops=name).ops
        if pattern is not None:
            self._operators.pop(name, None)  # the last word is the last in order too
            self._operators[name] = (pattern, enabled)

    def words(self) -> Choices:
        """The choices as they go into a file."""
        return Choices(
            scopes=self._scopes,
            operators={name: enabled for name, (_, enabled) in self._operators.items()},
        )

    def adopt(self, words: Choices) -> None:
        """Take choices that another process made."""
        self._scopes = dict(words.scopes)
        self._operators = {}
        for name, enabled in words.operators.items():
            self._choose_operator(name, enabled=enabled)

    def wants_kernel(self, op: str, name: str, module: str) -> bool:
        """Whether a kernel of a compiled graph was chosen, module being the path of its scope,
        wrappers around the net included.
        """
        depth, chosen = -1, False
        for path, enabled in self._scopes.items():
            if len(path) > depth and (not path or f".{path}." in f".{module}."):
                depth, chosen = len(path), enabled
        operators = [
            enabled
            for pattern, enabled in self._operators.values()
            if pattern.matches(op, name, module)
        ]
        return operators[-1] if operators else chosen

    def wants(
        self, names: Iterable[str], name: str, module: str, path_of: Callable[[object], str | None]
    ) -> bool:
        """Whether a call of these operator names, with its own name and module, was chosen.

        path_of gives the path of a module object, None while it is not known. Of nested choices the
        innermost holds.
        """
        depth, chosen = -1, False
        for reference, enabled in self._modules.values():
            module_object = reference()
            path = None if module_object is None else path_of(module_object)
            if (
                path is not None
                and len(path) > depth
                and (path in {"", module} or module.startswith(f"{path}."))
            ):
                depth, chosen = len(path), enabled
        operators = [
            enabled
            for pattern, enabled in self._operators.values()
            if any(pattern.matches(each, name, module) for each in names)
        ]
        return operators[-1] if operators else chosen


def path_from_the_root(cell: object) -> str:
    """The path of a MindSpore Cell from the outermost Cell of the program that holds it; "" where
    none does.
    """
    names: list[str] = []
    held = _holder(cell)
    while held is not None and len(names) < 100:
        outer, name = held
        names.append(name)
        held = _holder(outer)
    return ".".join(reversed(names))


def _holder(cell: object) -> tuple[object, str] | None:
    """The Cell that holds this one among its own, and the name it has there."""
    for cells in gc.get_referrers(cell):
        name = (
            next((key for key, held in cells.items() if held is cell), None)
            if isinstance(cells, dict)
            else None
        )
        if not isinstance(name, str):
            continue
        for owner in gc.get_referrers(cells):
            inside = (
                owner.get("_cells") if isinstance(owner, dict) else getattr(owner, "_cells", None)
            )
            if inside is cells:
                outer = next(
                    (
                        cell_object
                        for cell_object in gc.get_referrers(owner)
                        if getattr(cell_object, "_cells", None) is cells
                    ),
                    None,
                )
                return (owner if not isinstance(owner, dict) else outer, name)
    return None


def _untold(error: BaseException) -> None:
    tell(f"the choice reaches this process alone: {reason(error)}")


def _operator_name(target: object) -> str:
    """The name of torch.ops.aten.bmm, of torch.ops.aten.bmm.default, or of a primitive of
    MindSpore.
    """
    primitive = any(kind.__name__ in {"Primitive", "Primitive_"} for kind in type(target).__mro__)
    for attribute in ("_qualified_op_name", "_name", *(("name",) if primitive else ())):
        name = getattr(target, attribute, None)
        if isinstance(name, str):
            return name
    raise UsageError(
        f"set_dump: {target!r} is neither a module nor an operator; give an nn.Module, an "
        "nn.Cell, torch.ops.aten.bmm or a name"
    )
