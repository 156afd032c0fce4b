# SPDX-License-Identifier: Apache-2.0
"""What a MindSpore tensor is and holds, and where tensors stand in arguments and results."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from opscope import narrow
from opscope.arrays import Array
from opscope.formats.mindspore.arguments import tagged
from opscope.run.dtypes import find_dtype
from opscope.run.schema import Tensor

LARGEST_BASE = 64 << 20
PARAMETER = "parameter"


def described(process: int, index: int, io: str, slot: str, tensor: Any) -> Tensor:
    """The row of a tensor, nothing of it read."""
    dtype = find_dtype(str(tensor.dtype))
    role = PARAMETER if type(tensor).__name__ == "Parameter" else None
    return Tensor(
        process=process,
        index=index,
        io=io,
        slot=slot,
        dtype=dtype.name if dtype else str(tensor.dtype).lower(),
        shape=tuple(int(size) for size in tensor.shape),
        device=str(getattr(tensor, "device", "CPU")).lower().partition(":")[0],
        role=role,
        tensor_name=getattr(tensor, "name", None) if role else None,
    )


def data_address(tensor: Any) -> tuple[int, int]:
    """Where a tensor's bytes lie, and how many elements they are."""
    size = 1
    for length in tensor.shape:
        size *= int(length)
    return int(tensor.data_ptr()), size


def parameters_of(cell: Any) -> dict[tuple[int, int], str]:
    """Names of the parameters of a Cell by where their bytes lie: primitives are handed tensors of
    the same bytes, without a name. Nothing of a parameter that has no bytes yet.
    """
    known: dict[tuple[int, int], str] = {}
    for held in cell.get_parameters():
        with contextlib.suppress(RuntimeError, TypeError, ValueError):
            known[data_address(held)] = str(held.name)
    return {where: name for where, name in known.items() if where[0]}


def base_of(tensor: Any, dtype: np.dtype[Any]) -> tuple[tuple[int, int], Array] | None:
    """The whole storage that a view on the host lies in: where, as data_address says it, and its
    elements as this type, one after the other. None for a tensor that has its storage to itself,
    and for one whose storage is too large to be read for this.
    """
    if (
        getattr(tensor, "untyped_storage", None) is None
        or str(getattr(tensor, "device", "")).upper().partition(":")[0] != "CPU"
    ):
        return None
    storage = tensor.untyped_storage()
    start, size = int(storage.data_ptr()), int(storage.nbytes())
    where = (start, size // dtype.itemsize)
    if (
        not 0 < size <= LARGEST_BASE
        or size % dtype.itemsize
        or not start
        or where == data_address(tensor)
    ):
        return None
    return where, np.frombuffer(memoryview((ctypes.c_char * size).from_address(start)), dtype)


def array_of(tensor: Any) -> Array | None:
    """A tensor's elements in NumPy; None for what NumPy has no type for."""
    try:
        if str(tensor.dtype) == "BFloat16":  # MindSpore's NumPy has none
            return np.frombuffer(tensor.get_bytes(), narrow.dtype("bfloat16")).reshape(tensor.shape)
        return np.asarray(tensor.asnumpy())
    except (RuntimeError, TypeError, ValueError):
        return None


def tensors_in(value: Any, kind: type, slot: str = "") -> Iterator[tuple[str, Any]]:
    """Tensors of arguments or results, with their slots; a lone result has slot 0."""
    if isinstance(value, kind):
        yield slot or "0", value
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from tensors_in(item, kind, f"{slot}.{number}" if slot else str(number))


def arguments_text(
    args: Sequence[Any], kind: type, attributes: Mapping[str, Any] | None = None
) -> str:
    """Column args: tensors as {"tensor": SLOT}, the rest tagged; attributes are those of the
    primitive.
    """

    def tree(value: Any, slot: str) -> Any:
        if isinstance(value, kind):
            return {"tensor": slot}
        if isinstance(value, (list, tuple)):
            return [tree(item, f"{slot}.{number}") for number, item in enumerate(value)]
        return tagged(value)

    named = {name: tagged(value) for name, value in (attributes or {}).items()}
    return msgspec.json.encode(
        {"args": [tree(value, str(number)) for number, value in enumerate(args)], "kwargs": named}
    ).decode()


def attributes_of(args: Sequence[Any]) -> dict[str, Any]:
    """What the primitive of an older entry point was built with; {} for the others, whose operands
    are all there is.
    """
    primitive = args[0] if len(args) == 3 and isinstance(args[1], str) else None
    for held in ("init_attrs", "attrs"):
        attributes = getattr(primitive, held, None)
        if isinstance(attributes, dict) and attributes:
            return {str(name): value for name, value in attributes.items()}
    return {}


def plain_call(args: Sequence[Any]) -> tuple[Any, ...]:
    """The operands of a primitive: older entry points hand over the primitive, its name and the
    operands as one tuple.
    """
    if len(args) == 3 and isinstance(args[1], str) and isinstance(args[2], (tuple, list)):
        return tuple(args[2])
    return tuple(args)
