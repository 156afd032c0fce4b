# SPDX-License-Identifier: Apache-2.0
"""Column args of a kernel: {"args": [operands], "kwargs": {attributes of the primitive}}.

Operands that are tensors stand as {"tensor": SLOT}; constants as their values. The attributes are
those of the .ir, with the values of {op_type}.{op_name}.json over them: enough to build the
primitive again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import Any

import msgspec

from opscope.formats.mindspore.edges import Slot, Wiring
from opscope.formats.mindspore.graph import Node

_CONSTANT_TENSOR = re.compile(
    r"Tensor\((?:shape=\[(\d*)\], dtype=U?Int\d+, value= ?(-?\d+|\[[\d, -]*\])\)\Z)?"
)
_DEPTH_LIMIT = 32


def arguments_text(
    node: Node | None,
    wiring: Wiring | None,
    saved: dict[str, Any],
    dumped: Collection[tuple[str, str]] = frozenset(),
) -> str | None:
    """The JSON text; None when nothing is known. dumped has (io, slot) of what the kernel has files
    of.
    """
    if node is None and not saved:
        return None
    known = [slot for slot in wiring.inputs if slot.source] if wiring is not None else []
    positional = [_operand(slot, dumped=("input", str(slot.position)) in dumped) for slot in known]
    named = {
        name: tagged(value) for name, value in (node.attrs if node is not None else {}).items()
    }
    named |= {name: tagged(value) for name, value in saved.items()}
    return msgspec.json.encode({"args": positional, "kwargs": named}).decode()


def _operand(slot: Slot, *, dumped: bool) -> Any:
    """A tensor by its slot, a constant by its value; so are small tensors of whole numbers that
    have no file, which the .ir spells out.
    """
    value = (
        slot.source.value if slot.source is not None and slot.source.kind == "constant" else None
    )
    spelt = _CONSTANT_TENSOR.match(value) if isinstance(value, str) else None
    if (
        slot.source is None
        or slot.source.kind != "constant"
        or (spelt is not None and (dumped or spelt[2] is None))
    ):
        return {"tensor": str(slot.position)}
    if spelt is None:
        return tagged(value)
    numbers = [int(number) for number in re.findall(r"-?\d+", spelt[2])]
    if not spelt[1]:
        return numbers[0]
    return numbers if len(numbers) == int(spelt[1]) else {"tensor": str(slot.position)}


def tagged(value: Any, depth: int = 0) -> Any:
    """A value as column args has it: numbers that are not finite and types tagged, tuples as lists,
    the rest as text.
    """
    if depth > _DEPTH_LIMIT:
        return {"object": "nested too deep"}
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else {"object": str(value)[:64]}
    if isinstance(value, float):
        return (
            value
            if math.isfinite(value)
            else {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
        )
    if isinstance(value, (list, tuple)):
        return [tagged(item, depth + 1) for item in value]
    if isinstance(value, dict) and list(value) == ["dtype"]:
        return {"dtype": value["dtype"]} if value["dtype"] else None
    if isinstance(value, dict):
        return {"object": {str(name): tagged(item, depth + 1) for name, item in value.items()}}
    return {"object": str(value)[:200]}
