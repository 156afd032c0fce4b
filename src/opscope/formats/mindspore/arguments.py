# SPDX-License-Identifier: Apache-2.0
"""Column args of a kernel: {"args": [operands], "kwargs": {attributes of the primitive}}.

Operands that are tensors stand as {"tensor": SLOT}; constants as their values. The attributes are those of the .ir, with the
values of {op_type}.{op_name}.json over them: enough to build the primitive again.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from opscope.formats.mindspore.edges import Wiring
from opscope.formats.mindspore.graph import Node

_CONSTANT_TENSOR = re.compile(r"Tensor\(")
_DEPTH_LIMIT = 32


def arguments_text(node: Node | None, wiring: Wiring | None, saved: dict[str, Any]) -> str | None:
    """The JSON text; None when nothing is known."""
    if node is None and not saved:
        return None
    positional = [_operand(slot.position, slot.source.kind, slot.source.value) for slot in wiring.inputs if slot.source] if wiring else []
    named = {name: tagged(value) for name, value in (node.attrs if node is not None else {}).items()}
    named |= {name: tagged(value) for name, value in saved.items()}
    return msgspec.json.encode({"args": positional, "kwargs": named}).decode()


def _operand(position: int, kind: str, value: Any) -> Any:
    if kind != "constant" or (isinstance(value, str) and _CONSTANT_TENSOR.match(value)):
        return {"tensor": str(position)}
    return tagged(value)


def tagged(value: Any, depth: int = 0) -> Any:
    """A value as column args has it: numbers that are not finite and types tagged, tuples as lists, the rest as text."""
    if depth > _DEPTH_LIMIT:
        return {"object": "nested too deep"}
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else {"object": str(value)[:64]}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, (list, tuple)):
        return [tagged(item, depth + 1) for item in value]
    if isinstance(value, dict) and list(value) == ["dtype"]:
        return {"dtype": value["dtype"]} if value["dtype"] else None
    if isinstance(value, dict):
        return {"object": {str(name): tagged(item, depth + 1) for name, item in value.items()}}
    return {"object": str(value)[:200]}
