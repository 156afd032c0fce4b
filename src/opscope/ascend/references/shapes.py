# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements without changing them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .table import Attributes, Inapplicable, reference


def _given(x: Any, a: Attributes, slot: Any, name: Any) -> Any:
    """A list of integers given as an input, else as an attribute (the …D form)."""
    if len(x) > slot and x[slot] is not None:
        return tuple(int(one) for one in x[slot].reshape(-1))
    return a.integers(name)


reference("Transpose", "TransposeD")(lambda x, a: np.transpose(x[0], _given(x, a, 1, "perm")))
reference("Reshape")(lambda x, a: x[0].reshape(_given(x, a, 1, "shape")))
reference("Flatten", "FlattenV2")(lambda x, a: x[0].reshape(*x[0].shape[: int(a("axis", 1))], -1))
reference("Tile", "TileD")(lambda x, a: np.tile(x[0], _given(x, a, 1, "multiples")))
reference("BroadcastTo", "BroadcastToD")(
    lambda x, a: np.broadcast_to(x[0], _given(x, a, 1, "shape"))
)
reference("Expand", "ExpandD")(lambda x, a: x[0] * np.ones(_given(x, a, 1, "shape"), x[0].dtype))
reference("Fill", "FillD")(lambda x, a: np.full(_given(x, a, 0, "dims"), x[-1].reshape(())))
reference("Pack")(lambda x, a: np.stack(x, axis=int(a("axis", 0))))
reference("Squeeze")(lambda x, a: np.squeeze(x[0], axis=a.integers("axis") or None))
reference("ExpandDims")(lambda x, a: np.expand_dims(x[0], _given(x, a, 1, "axis")))
reference("ReverseV2", "ReverseV2D")(lambda x, a: np.flip(x[0], _given(x, a, 1, "axis")))
reference("Slice", "SliceD")(
    lambda x, a: _slice(x[0], _given(x, a, 1, "offsets"), _given(x, a, 2, "size"))
)
reference("ConcatD")(lambda x, a: np.concatenate(x, axis=int(a("concat_dim", 0))))
reference("ConcatV2D")(lambda x, a: np.concatenate(x, axis=int(a("concat_dim", 0))))
reference("ConcatV2")(lambda x, _: np.concatenate(x[:-1], axis=int(x[-1].reshape(-1)[0])))
reference("Concat")(lambda x, _: np.concatenate(x[1:], axis=int(x[0].reshape(-1)[0])))
reference("Shape")(lambda x, _: np.array(x[0].shape))
reference("Size")(lambda x, _: np.array(x[0].size))
reference("Range", "RangeD")(
    lambda x, _: np.arange(x[0].reshape(()), x[1].reshape(()), x[2].reshape(()))
)
reference("Tril")(lambda x, a: np.tril(x[0], int(a("diagonal", 0))))
reference("Triu")(lambda x, a: np.triu(x[0], int(a("diagonal", 0))))
reference("Roll")(lambda x, a: np.roll(x[0], a.integers("shifts"), a.integers("dims") or None))
reference("LinSpace", "LinSpaceD")(
    lambda x, _: np.linspace(x[0].reshape(()), x[1].reshape(()), int(x[2].reshape(())))
)
reference("Eye")(
    lambda _, a: np.eye(int(a("num_rows")), int(a("num_columns", 0)) or int(a("num_rows")))
)
reference("DiagPart", "DiagPartD")(lambda x, _: np.diagonal(x[0]))


def _slice(x: Any, starts: Any, sizes: Any) -> Any:
    ends = [
        size + start if size >= 0 else extent
        for start, size, extent in zip(starts, sizes, x.shape, strict=True)
    ]
    return x[tuple(slice(start, end) for start, end in zip(starts, ends, strict=True))]


@reference("Unpack")
def unpack(x: Sequence[Any], a: Attributes) -> Any:
    """The slices along axis."""
    axis = int(a("axis", 0))
    return tuple(np.take(x[0], number, axis=axis) for number in range(x[0].shape[axis]))


@reference("Split", "SplitD")
def split(x: Sequence[Any], a: Attributes) -> Any:
    """num_split equal pieces; Split has its dimension as first input."""
    value, axis = (x[1], int(x[0].reshape(-1)[0])) if len(x) > 1 else (x[0], int(a("split_dim", 0)))
    return tuple(np.split(value, int(a("num_split", 1)), axis=axis))


@reference("SplitV", "SplitVD")
def split_v(x: Sequence[Any], a: Attributes) -> Any:
    """Pieces of given sizes, one of which may be -1."""
    sizes = list(_given(x, a, 1, "size_splits"))
    axis = int(x[2].reshape(-1)[0]) if len(x) > 2 else int(a("split_dim", 0))
    if -1 in sizes:
        sizes[sizes.index(-1)] = x[0].shape[axis] - sum(sizes) - 1
    return tuple(np.split(x[0], np.cumsum(sizes)[:-1], axis=axis))


@reference("Pad", "PadD", "PadV2")
def pad(x: Sequence[Any], a: Attributes) -> Any:
    """Zeros (PadV2: its third input) around."""
    pairs = np.array(_given(x, a, 1, "paddings")).reshape(-1, 2)
    value = x[2].reshape(()) if len(x) > 2 and x[2] is not None else 0
    return np.pad(x[0], pairs, constant_values=value)


@reference("StridedSlice", "StridedSliceD")
def strided_slice(x: Sequence[Any], a: Attributes) -> Any:
    """TensorFlow's slice without ellipsis and new axes."""
    if a("ellipsis_mask", 0) or a("new_axis_mask", 0):
        raise Inapplicable("ellipsis_mask or new_axis_mask")
    begin, end, strides = (
        _given(x, a, number, name) for number, name in ((1, "begin"), (2, "end"), (3, "strides"))
    )
    strides = strides or (1,) * len(begin)
    parts: list[slice | int] = []
    for number, (start, stop, step) in enumerate(zip(begin, end, strides, strict=True)):
        if int(a("shrink_axis_mask", 0)) >> number & 1:
            parts.append(start)
            continue
        free = [int(a(name, 0)) >> number & 1 for name in ("begin_mask", "end_mask")]
        parts.append(slice(None if free[0] else start, None if free[1] else stop, step))
    return x[0][tuple(parts)]


@reference("DepthToSpace")
def depth_to_space(x: Sequence[Any], a: Attributes) -> Any:
    """Blocks of channels become blocks of pixels (NHWC)."""
    block = int(a("block_size"))
    n, h, w, c = x[0].shape
    return (
        x[0]
        .reshape(n, h, w, block, block, c // (block * block))
        .transpose(0, 1, 3, 2, 4, 5)
        .reshape(n, h * block, w * block, -1)
    )


@reference("SpaceToDepth")
def space_to_depth(x: Sequence[Any], a: Attributes) -> Any:
    """Blocks of pixels become blocks of channels (NHWC)."""
    block = int(a("block_size"))
    n, h, w, c = x[0].shape
    return (
        x[0]
        .reshape(n, h // block, block, w // block, block, c)
        .transpose(0, 1, 3, 2, 4, 5)
        .reshape(n, h // block, w // block, -1)
    )


@reference("ViewCopy", "TensorMove", "MemSet", "TransData")
def same(x: Sequence[Any], _: Attributes) -> Any:
    """The elements as they are; TransData changes only the order on the device, and dumps are read
    in the host's.
    """
    return x[-1] if prod(x[-1].shape) == prod(x[0].shape) else x[0]
