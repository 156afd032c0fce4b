# SPDX-License-Identifier: Apache-2.0
"""A part of a captured graph as data (docs/schema.md, judgements), of which a case is made."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from opscope.record.torch.windows import Cut

ROOTS = {"torch": torch, "operator": operator}
PLAIN = (bool, int, str, type(None))


def encode_window(cut: Cut, backend: str) -> tuple[dict[str, Any], list[torch.Tensor]] | None:
    """Nodes, inputs, outputs, and the element that deviates; and the memories that the inputs are
    views of, flat. None for what data cannot say: functions without a public place, graphs within,
    one memory read as two types.
    """
    names = [node.name for node in cut.graph.nodes if node.op == "placeholder"]
    try:
        memories = _memories(cut.given)
        places = list(memories)
        window = {
            "backend": backend,
            "memories": [
                {"dtype": _bare(each.dtype), "size": each.numel()} for each in memories.values()
            ],
            "inputs": [
                {
                    "name": name,
                    "memory": places.index(each.untyped_storage()._cdata),
                    "shape": list(each.shape),
                    "stride": list(each.stride()),
                    "offset": each.storage_offset(),
                    "trained": number in cut.trained,
                }
                for number, (name, each) in enumerate(zip(names, cut.given, strict=True))
            ],
            "nodes": [_node(n) for n in cut.graph.nodes if n.op not in ("placeholder", "output")],
            "outputs": [
                each.name
                for node in cut.graph.nodes
                if node.op == "output"
                for each in node.args[0]
            ],
            "witness": cut.deviating.witness(),
        }
    except ValueError:
        return None
    return window, list(memories.values())


def _memories(given: list[torch.Tensor]) -> dict[int, torch.Tensor]:
    """The memories of these tensors, each once, flat."""
    memories: dict[int, torch.Tensor] = {}
    for each in given:
        storage = each.untyped_storage()
        size = storage.nbytes() // each.itemsize
        flat = torch.empty(0, dtype=each.dtype).set_(storage, 0, (size,), (1,))
        if memories.setdefault(storage._cdata, flat).dtype != each.dtype:
            raise ValueError("one memory, two types")
    return memories


def _bare(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _node(node: torch.fx.Node) -> dict[str, Any]:
    if node.op == "call_method":
        target = str(node.target)
    elif node.op == "call_function":
        target = _place(node.target)
    else:
        raise ValueError(node.op)
    return {
        "name": node.name,
        "kind": node.op,
        "target": target,
        "args": [_argument(each) for each in node.args],
        "kwargs": {name: _argument(each) for name, each in node.kwargs.items()},
    }


def _place(target: Any) -> str:
    """The public name of a function, by which it is found again."""
    name = torch.fx.node._get_qualified_name(target).replace("_operator.", "operator.")
    reached: Any = ROOTS
    for word in name.split("."):
        reached = reached.get(word) if isinstance(reached, dict) else getattr(reached, word, None)
    if reached is not target:
        raise ValueError(name)
    return name


def _argument(value: Any) -> Any:
    """A number, text or None as it is; anything else as an object of one name."""
    if isinstance(value, PLAIN) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list):
        return [_argument(each) for each in value]
    if isinstance(value, (tuple, torch.Size)):
        return {"tuple": [_argument(each) for each in value]}
    if isinstance(value, slice):
        return {"slice": [_argument(each) for each in (value.start, value.stop, value.step)]}
    for kind, types, text in ENCODED:
        if isinstance(value, types):
            return {kind: text(value)}
    raise ValueError(type(value).__name__)


ENCODED: tuple[tuple[str, Any, Any], ...] = (
    ("node", torch.fx.Node, lambda value: value.name),
    ("float", float, str),
    ("device", torch.device, lambda value: value.type),
    (
        "constant",
        (torch.dtype, torch.memory_format, torch.layout),
        _bare,
    ),
    ("ellipsis", type(Ellipsis), lambda _: True),
)
