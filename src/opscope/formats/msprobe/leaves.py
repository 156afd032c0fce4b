# SPDX-License-Identifier: Apache-2.0
"""Values in dump.json: tensors become rows, everything else becomes arguments.

msprobe's Max, Min, Mean and Norm are over all elements: a NaN anywhere makes all of them NaN. They
are mapped by extremes.py: min and max null then, and counts that are the least there can be. Its
"md5" is a CRC-32 or an xor of words and no digest of ours. The statistics of a DTensor are those of
the local shard. Scalars are {"type": "int", "value": 2}; None is null.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from opscope.formats.extremes import number, proven
from opscope.run.dtypes import find_dtype

_DEPTH_LIMIT = 64
_RANK_LIMIT = 64
_STATISTICS = ("Max", "Min", "Mean", "Norm")
_SCALARS = frozenset({"int", "float", "bool", "str"})


class TensorLeaf(msgspec.Struct, frozen=True):
    """A tensor in dump.json: its slot, the columns that are known, its file name, and msprobe's own
    hash.
    """

    slot: str
    columns: dict[str, Any]
    data_name: str | None = None
    hash: str | None = None


def is_tensor(value: Any) -> bool:
    """Whether a value of dump.json stands for a tensor or an array."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("type"), str)
        and "dtype" in value
        and "shape" in value
    )


def tensors(value: Any, slot: str, depth: int = 0) -> Iterator[TensorLeaf]:
    """Tensors of a nested value with their slots; None where a gradient is missing has no row."""
    if is_tensor(value):
        yield leaf(value, slot)
    elif depth < _DEPTH_LIMIT and isinstance(value, list):
        for i, item in enumerate(value):
            yield from tensors(item, f"{slot}.{i}" if slot else str(i), depth + 1)
    elif depth < _DEPTH_LIMIT and isinstance(value, dict):
        if value.get("class_type") == "torch.distributed.P2POp":
            yield from tensors(value.get("tensor"), f"{slot}.tensor", depth + 1)
        elif "type" not in value or not isinstance(value["type"], str):
            for key, item in value.items():
                yield from tensors(item, f"{slot}.{key}" if slot else str(key), depth + 1)


def leaf(value: dict[str, Any], slot: str) -> TensorLeaf:
    """One tensor; fields that make no sense are left out."""
    said = value.get("dtype")
    known = find_dtype(said) if isinstance(said, str) else None
    dtype = known.name if known else str(said)[:64]
    shape = _shape(value.get("shape"))
    columns: dict[str, Any] = {"dtype": dtype, "shape": shape}
    columns |= proven(
        dtype, *(value.get(name) for name in _STATISTICS), torch=value["type"].startswith("torch")
    )
    local = "placements" in value or "device_mesh" in value
    if shape is not None and not local:
        columns["size"] = math.prod(shape)
    requires = value.get("requires_grad")
    if isinstance(requires, bool):
        columns["requires_grad"] = requires
    kind = value["type"].rsplit(".", 1)[-1]
    if kind not in {"Tensor", "ndarray"}:
        columns["tensor_class"] = kind[:64]
    if isinstance(value.get("layout"), str):
        columns["layout"] = value["layout"][:200]
    code = value.get("md5")
    # xor mode keeps the number itself of a 0-d tensor
    if shape == () and number(code) is not None and not isinstance(code, str):
        columns |= proven(dtype, code, code, code, abs(number(code) or 0.0))
        code = None
    name = value.get("data_name")
    return TensorLeaf(
        slot,
        columns,
        name if isinstance(name, str) and _plain(name) else None,
        str(code)[:64] if code is not None else None,
    )


def _plain(name: str) -> bool:
    """A name that leads to a file of the folder itself."""
    return 0 < len(name) <= 255 and not set(name) & set("/\\\0") and name not in {".", ".."}


def _shape(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) > _RANK_LIMIT:
        return None
    if (
        not all(type(size) is int and 0 <= size < 1 << 62 for size in value)
        or math.prod(value) >= 1 << 62
    ):
        return None
    return tuple(value)


def arguments_text(positional: Any, named: Any) -> str:
    """Column args of what a call was given by position and by name, as far as they are such."""
    tree = {
        "args": [
            argument(value, str(i))
            for i, value in enumerate(positional if isinstance(positional, list) else [])
        ],
        "kwargs": {
            name: argument(value, f"kwargs.{name}")
            for name, value in (named if isinstance(named, dict) else {}).items()
        },
    }
    return msgspec.json.encode(tree).decode()


def argument(value: Any, slot: str, depth: int = 0) -> Any:
    """A value as column args has it."""
    if is_tensor(value):
        return {"tensor": slot}
    if depth >= _DEPTH_LIMIT:
        return {"object": "nested too deep"}
    if isinstance(value, list):
        return [argument(item, f"{slot}.{i}", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, dict):
        return _described(value, slot, depth)
    return plain_value(value)


def _described(value: dict[str, Any], slot: str, depth: int) -> Any:
    """A typed value, or a dict of values."""
    kind = value.get("type")
    if not isinstance(kind, str):
        if not value:
            return {
                "object": "not recorded"
            }  # msprobe writes {} for dtypes and devices given by position
        return {
            "object": {
                str(key): argument(item, f"{slot}.{key}", depth + 1) for key, item in value.items()
            }
        }
    held = value.get("value")
    if kind in _SCALARS:
        return plain_value(held)
    if kind == "torch.dtype" and isinstance(held, str):
        known = find_dtype(held)
        return {"dtype": known.name if known else held[:64]}
    if kind == "torch.device":
        return {"device": str(held)[:64]}
    if kind == "torch.memory_format":
        return {"memory_format": str(value.get("format")).removeprefix("torch.")[:64]}
    if kind == "torch.Size":
        return argument(held, slot, depth + 1)
    return {"object": {str(key): argument(item, slot, depth + 1) for key, item in value.items()}}


def plain_value(value: Any) -> Any:
    """A scalar as column args has it: not finite numbers tagged, what is no scalar as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 64:
        return {"object": str(value)[:64]}
    return (
        value
        if value is None or isinstance(value, (bool, int, float, str))
        else {"object": str(value)[:200]}
    )
