# SPDX-License-Identifier: Apache-2.0
"""Which memory the tensors of a call share, and where in it each of them lies."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from opscope.errors import UsageError
from opscope.repro.case import Buffer
from opscope.run.dtypes import DType, dtype_of
from opscope.run.schema import Tensor, dense_strides

# bytes by which the unused head of a storage is cut: kernels choose paths by the address's
# alignment
ALIGNMENT = 512
SPARSEST = 64  # a view may spread over this many times its own bytes
LEAST = 256 << 20  # or over this many bytes


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor in its buffer; stride and offset in elements."""

    buffer: str
    stride: tuple[int, ...]
    offset: int


def place(rows: Sequence[Tensor]) -> tuple[dict[str, Buffer], dict[str, Placed], tuple[str, ...]]:
    """Buffers by name, the place of each row by slot, and a line for each tensor whose strides
    could not be kept.

    Rows of one storage share a buffer. A row without strides is laid out densely. UsageError for a
    row that cannot be a tensor (negative sizes or strides).
    """
    groups: dict[object, list[Tensor]] = defaultdict(list)
    warnings = []
    for row in rows:
        spread = row.stride is not None and extent(row) > max(LEAST, SPARSEST * bytes_of(row))
        if spread:
            warnings.append(
                f"conditions differ: input {row.slot} spread over {extent(row)} bytes; here "
                "it is dense"
            )
        if spread or row.stride is None or row.storage is None:
            dense = msgspec.structs.replace(row, stride=dense_strides(row.shape or ()), offset=0)
            groups["alone", row.slot].append(dense if spread or row.stride is None else row)
        else:
            groups[row.storage, row.device].append(row)
    buffers, placed = {}, {}
    for number, members in enumerate(groups.values()):
        buffers[str(number)], offsets = _share(members)
        for row, offset in zip(members, offsets, strict=True):
            placed[row.slot] = Placed(buffer=str(number), stride=row.stride or (), offset=offset)
    return buffers, placed, tuple(warnings)


def kept_shape(shape: Sequence[int], stride: Sequence[int]) -> tuple[int, ...]:
    """The shape in which values are stored: dimensions of stride 0 once."""
    return tuple(
        1 if step == 0 and size > 1 else size for size, step in zip(shape, stride, strict=True)
    )


def bytes_of(row: Tensor) -> int:
    """Bytes of the logical elements."""
    return math.prod(row.shape or ()) * dtype_of(row.dtype).itemsize


def extent(row: Tensor) -> int:
    """Bytes from the first to past the last element."""
    shape, stride = row.shape or (), row.stride or ()
    if len(shape) != len(stride) or min((*shape, *stride, row.offset or 0), default=0) < 0:
        raise UsageError(
            f"input {row.slot} is recorded with shape {shape} and strides {stride}, which no "
            "tensor has"
        )
    if 0 in shape:
        return 0
    return (
        1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    ) * dtype_of(row.dtype).itemsize


def _share(rows: Sequence[Tensor]) -> tuple[Buffer, list[int]]:
    """The buffer that holds all these rows, and each row's offset in it."""
    types = [dtype_of(row.dtype) for row in rows]
    starts = [(row.offset or 0) * dtype.itemsize for row, dtype in zip(rows, types, strict=True)]
    head = _common_head(starts, types)
    ends = [start + extent(row) for row, start in zip(rows, starts, strict=True)]
    size = max(ends) - head
    offsets = [(start - head) // dtype.itemsize for start, dtype in zip(starts, types, strict=True)]
    if len({dtype.name for dtype in types}) == 1:
        return Buffer(size=size // types[0].itemsize, dtype=types[0].name), offsets
    whole = math.lcm(*(dtype.itemsize for dtype in types))
    return Buffer(size=-(-size // whole) * whole), offsets


def _common_head(starts: Iterable[int], types: Iterable[DType]) -> int:
    """Bytes before the first element that can be left out without changing any element's
    alignment.
    """
    step = math.lcm(ALIGNMENT, *(dtype.itemsize for dtype in types))
    return min(starts) // step * step
