# SPDX-License-Identifier: Apache-2.0
"""A tensor's memory: as an array in its own place, and as one dense block to be stored."""

from __future__ import annotations

import ctypes

import numpy as np
import torch

from opscope.arrays import Array
from opscope.record.torch.aside import TensorBase
from opscope.record.torch.composed import is_composed
from opscope.run.dtypes import find_dtype
from opscope.run.store.shard_reader import overlapping


def view(tensor: torch.Tensor) -> Array | None:
    """The tensor's own memory as an array in its true dtype, without a copy; None where it has none
    or NumPy no such type.
    """
    if is_composed(tensor):
        return None
    if tensor.is_conj() or tensor.is_neg():
        tensor = resolved(tensor)
    known = find_dtype(str(tensor.dtype).removeprefix("torch."))
    if known is None or known.numpy is None:
        return None
    dtype = known.to_numpy()
    if tensor.numel() == 0:
        return np.empty(tuple(tensor.shape), dtype)
    span = 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    memory = (ctypes.c_char * (span * dtype.itemsize)).from_address(tensor.data_ptr())
    memory.tensor = tensor  # type: ignore[attr-defined]  # the array keeps the memory, the memory its tensor
    strides = tuple(stride * dtype.itemsize for stride in tensor.stride())
    # as_strided names the type to NumPy by text, which has none for float8_e5m2
    array: Array = np.ndarray(tuple(tensor.shape), dtype, memoryview(memory), strides=strides)
    array.flags.writeable = False
    return array


def compact(tensor: torch.Tensor) -> torch.Tensor | None:
    """The elements a tensor covers as one dense host block in the order of memory, without a copy
    where it is one already.

    A reader lays the tensor's own shape and strides over the block again (run/store, `laid_out`).
    Elements that a stride of 0 repeats are stored once; a tensor that overlaps itself in any other
    way is stored in logical order.
    """
    if (
        not torch._C._has_storage(tensor)
        or tensor.is_meta
        or is_composed(tensor)
        or not lies_within(tensor)
    ):
        return None
    tensor = TensorBase.detach(tensor)
    if tensor.is_conj() or tensor.is_neg():
        return dense(resolved(tensor))
    once = (
        tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]
        if 0 in tensor.stride()
        else tensor
    )
    strides = once.stride()
    order = sorted(range(once.dim()), key=lambda d: (-strides[d], d))
    ordered = once.permute(order)
    return dense(tensor if overlaps_itself(ordered) else ordered)


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements of a tensor may be one in memory."""
    dims = zip(tensor.shape, tensor.stride(), strict=True)
    return overlapping(sorted(dims, key=lambda dim: -dim[1]))


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements on the host, in logical order."""
    return TensorBase.contiguous(TensorBase.cpu(tensor))  # type: ignore[no-any-return]


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its conjugate or negative bit carried out."""
    return TensorBase.resolve_neg(TensorBase.resolve_conj(TensorBase.detach(tensor)))  # type: ignore[no-any-return]


def lies_within(tensor: torch.Tensor) -> bool:
    """Whether the storage holds all that the tensor covers: programs free storages of tensors that
    they fill again later.
    """
    last = tensor.storage_offset() + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return (
        tensor.numel() == 0
        or (last + 1) * tensor.element_size() <= tensor.untyped_storage().nbytes()
    )


def block_bytes(block: torch.Tensor) -> memoryview:
    """Memory of a dense host tensor, valid as long as the tensor lives."""
    size = block.numel() * block.element_size()
    return memoryview((ctypes.c_char * size).from_address(block.data_ptr())).cast("B")
