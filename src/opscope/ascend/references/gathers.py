# SPDX-License-Identifier: Apache-2.0
"""Gather, scatter, segment sums, one-hot, top-k. Indices out of range are refused: the device would
read foreign memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .table import Attributes, Inapplicable, reference


def inside(indices: Any, size: Any) -> Any:
    """The indices, refused where one is out of range."""
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        raise Inapplicable(f"an index of {indices.min()} to {indices.max()} into {size} elements")
    return indices


@reference("GatherV2", "Gather", "GatherV2D", "GatherD")
def gather(x: Sequence[Any], a: Attributes) -> Any:
    """Slices of x[0] along axis at x[1]; batch_dims leading dimensions are paired."""
    axis = int(x[2].reshape(-1)[0]) if len(x) > 2 and x[2] is not None else int(a("axis", 0))
    batch = int(a("batch_dims", 0))
    axis %= x[0].ndim
    indices = x[1]
    if a.flag("negative_index_support"):
        indices = np.where(indices < 0, indices + x[0].shape[axis], indices)
    indices = inside(indices, x[0].shape[axis])
    if batch == 0:
        return np.take(x[0], indices, axis=axis)
    rows = [
        np.take(values, chosen, axis=axis - batch)
        for values, chosen in zip(
            x[0].reshape(-1, *x[0].shape[batch:]),
            indices.reshape(-1, *indices.shape[batch:]),
            strict=True,
        )
    ]
    return np.stack(rows).reshape(*x[0].shape[:batch], *rows[0].shape)


@reference("GatherElements")
def gather_elements(x: Sequence[Any], a: Attributes) -> Any:
    """Elements of x[0] along dim at x[1], place by place."""
    dim = int(a("dim", 0))
    return np.take_along_axis(x[0], inside(x[1], x[0].shape[dim]), axis=dim)


@reference("GatherNd")
def gather_nd(x: Sequence[Any], _: Attributes) -> Any:
    """Slices of x[0] at the index tuples in the last dimension of x[1]."""
    depth = x[1].shape[-1]
    return x[0][tuple(inside(x[1][..., axis], x[0].shape[axis]) for axis in range(depth))]


def _scatter(how: Any) -> Any:
    def run(x: Sequence[Any], _: Attributes) -> Any:
        out = np.array(x[0])
        how(out, inside(x[1], out.shape[0]), x[2])
        return out

    return run


def _put(out: Any, at: Any, values: Any) -> Any:
    out[at] = values


def _nd(how: Any) -> Any:
    def run(x: Sequence[Any], _: Attributes) -> Any:
        out = np.array(x[0])
        at = tuple(inside(x[1][..., axis], out.shape[axis]) for axis in range(x[1].shape[-1]))
        how(out, at, x[2])
        return out

    return run


reference("ScatterUpdate")(_scatter(_put))
reference("ScatterAdd")(_scatter(np.add.at))
reference("ScatterSub")(_scatter(np.subtract.at))
reference("ScatterMax")(_scatter(np.maximum.at))
reference("ScatterMin")(_scatter(np.minimum.at))
reference("ScatterNdUpdate", "TensorScatterUpdate")(_nd(_put))
reference("ScatterNdAdd", "TensorScatterAdd")(_nd(np.add.at))


@reference("ScatterNd", "ScatterNdD")
def scatter_nd(x: Sequence[Any], a: Attributes) -> Any:
    """Sums of the updates x[1] at the index tuples x[0] in a tensor of zeros."""
    shape = (
        tuple(int(one) for one in x[2].reshape(-1))
        if len(x) > 2 and x[2] is not None
        else a.integers("shape")
    )
    out = np.zeros(shape, x[1].dtype)
    np.add.at(
        out,
        tuple(inside(x[0][..., axis], shape[axis]) for axis in range(x[0].shape[-1])),
        x[1],
    )
    return out


@reference("UnsortedSegmentSum", "UnsortedSegmentSumD")
def segment_sum(x: Sequence[Any], a: Attributes) -> Any:
    """Sums of the rows of x[0] by the segment ids x[1]; negative ids are left out."""
    count = int(x[2].reshape(-1)[0]) if len(x) > 2 and x[2] is not None else int(a("num_segments"))
    ids = x[1].reshape(-1)
    rows = x[0].reshape(ids.size, *x[0].shape[x[1].ndim :])
    sums = np.zeros((count, *rows.shape[1:]), x[0].dtype)
    np.add.at(sums, inside(ids[ids >= 0], count), rows[ids >= 0])
    return sums


@reference("OneHot", "OneHotD")
def one_hot(x: Sequence[Any], a: Attributes) -> Any:
    """on where the class is, off elsewhere; inputs x, depth, on, off (OneHotD: x, on, off and
    attribute depth).
    """
    depth, on, off = (x[1], x[2], x[3]) if len(x) > 3 else (np.array(a("depth")), x[1], x[2])
    axis = int(a("axis", -1))
    size = int(depth.reshape(-1)[0])
    classes = np.arange(size)
    class_axis = x[0].ndim if axis < 0 else axis
    same = np.expand_dims(x[0], class_axis) == classes.reshape(
        [-1 if one == class_axis else 1 for one in range(x[0].ndim + 1)]
    )
    return np.where(same, on.reshape(()), off.reshape(()))


@reference("TopKV2", "TopK", "TopKD")
def top_k(x: Sequence[Any], a: Attributes) -> Any:
    """The k largest of the last dimension, sorted, and their places."""
    k = int(a("k")) if a("k") is not None else int(x[1].reshape(-1)[0])
    order = np.argsort(
        x[0] if not a.flag("largest", default=True) else -x[0], axis=-1, kind="stable"
    )[..., :k]
    return np.take_along_axis(x[0], order, axis=-1), order


@reference("MaskedFill")
def masked_fill(x: Sequence[Any], _: Attributes) -> Any:
    """x[2] where the mask x[1] is set."""
    return np.where(x[1], x[2], x[0])


@reference("EmbeddingDenseGrad")
def embedding_gradient(x: Sequence[Any], a: Attributes) -> Any:
    """Sums of the rows of x[0] by the indices x[1], without that of padding_idx."""
    ids, rows = x[1].reshape(-1), x[0].reshape(x[1].size, -1)
    sums = np.zeros((int(a("num_weights")), rows.shape[1]))
    kept = ids != int(a("padding_idx", -1))
    np.add.at(sums, inside(ids[kept], sums.shape[0]), rows[kept])
    return sums
