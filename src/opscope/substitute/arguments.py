# SPDX-License-Identifier: Apache-2.0
"""Values of an argument tree: tensors put into their slots, tagged leaves made into what they stand
for.

The tree is that of docs/schema.md, column args. One that comes from a file is checked first
(repro/arguments.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from opscope.arrays import Array
from opscope.errors import UsageError

LAYOUTS = (
    "strided",
    "sparse_coo",
    "sparse_csr",
    "sparse_csc",
    "sparse_bsr",
    "sparse_bsc",
    "_mkldnn",
    "jagged",
)
MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


class Conditions:
    """Where a call is made and in which element types.

    device replaces every recorded device that is not the host; wide replaces floating types by
    float64 and complex ones by complex128, narrow (float32) by what is named.
    """

    def __init__(self, *, device: str | None = None, wide: torch.dtype | None = None) -> None:
        self.target = device
        self.wide = wide

    def dtype(self, dtype: torch.dtype) -> torch.dtype:
        if self.wide is None:
            return dtype
        if dtype.is_complex:
            return torch.complex128 if self.wide is torch.float64 else torch.complex64
        return self.wide if dtype.is_floating_point else dtype

    def device(self, name: str) -> str:
        return name if self.target is None or name == "cpu" else self.target


def dtype_named(name: str) -> torch.dtype:
    """The element type of this name; UsageError when torch has none."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(
            f"torch {torch.__version__} has no element type {name!r}; take another call"
        )
    return dtype


def bytes_of(array: Array) -> torch.Tensor:
    """A copy of the bytes of an array, in C order, as a tensor."""
    data = bytearray(array.tobytes()) or bytearray(1)  # torch takes no empty buffer
    return torch.frombuffer(data, dtype=torch.uint8)[: array.nbytes]


def dtype_name(tensor: torch.Tensor) -> str:
    """`float32` of a tensor, as dtype_named reads it."""
    return str(tensor.dtype).removeprefix("torch.")


def values_of(
    tree: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], where: Conditions
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments and keyword arguments; UsageError for a leaf that cannot be made again."""
    args = [_value(node, tensors, where) for node in tree["args"]]
    return args, {key: _value(node, tensors, where) for key, node in tree["kwargs"].items()}


def unknown_leaf(tree: Mapping[str, Any]) -> str | None:
    """The first leaf that cannot be made again, None when all can."""
    for node in _leaves([*tree["args"], *tree["kwargs"].values()]):
        if isinstance(node, dict) and "object" in node:
            return str(node["object"])
    return None


def in_float32(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as a device without float64 is given them: numbers as float32."""
    return {
        "args": [_number_in_float32(node) for node in tree["args"]],
        "kwargs": {key: _number_in_float32(node) for key, node in tree["kwargs"].items()},
    }


def _number_in_float32(node: Any) -> Any:
    if isinstance(node, list):
        return [_number_in_float32(item) for item in node]
    return torch.tensor(node, dtype=torch.float32).item() if type(node) is float else node


def _leaves(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        for item in node:
            yield from _leaves(item)
    else:
        yield node


def _value(node: Any, tensors: Mapping[str, torch.Tensor], where: Conditions) -> Any:
    if isinstance(node, list):
        return [_value(item, tensors, where) for item in node]
    if not isinstance(node, dict):
        return node
    tag, value = next(iter(node.items()))
    if tag == "tensor":
        return tensors[value]
    if tag == "dtype":
        return where.dtype(dtype_named(value))
    if tag == "device":
        return torch.device(where.device(value))
    return _constant(tag, value)


def _constant(tag: str, value: Any) -> Any:
    """What a tagged leaf stands for that is the same wherever the call is made."""
    if tag == "generator":
        return torch.default_generator
    if (tag == "layout" and value in LAYOUTS) or (
        tag == "memory_format" and value in MEMORY_FORMATS
    ):
        return getattr(torch, value)
    if tag == "float":
        return float(value)
    if tag == "complex":
        return complex(
            *(float(part["float"]) if isinstance(part, dict) else float(part) for part in value)
        )
    raise UsageError(
        f"an argument is {tag} {str(value)[:200]}, which cannot be made again from a record"
    )
