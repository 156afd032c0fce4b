# SPDX-License-Identifier: Apache-2.0
"""What stored values look like: matrices of bytes that a page draws, and histograms."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.errors import OpscopeError
from opscope.narrow import widened

if TYPE_CHECKING:
    from opscope.arrays import Array
    from opscope.run.protocol import Run
    from opscope.run.schema import Tensor

# cells of a picture: rows and columns
SIDE = (48, 64)
BINS = 40
MOST_ELEMENTS = 1 << 22


def values_of(run: Run, tensor: Tensor) -> dict[str, Any] | None:
    """Histogram and magnitudes of a tensor whose values were kept; None where there are none."""
    if tensor.value is None or not 0 < (tensor.size or 0) <= MOST_ELEMENTS:
        return None
    try:
        array = run.value(tensor)
    except (OpscopeError, MemoryError):
        return None
    if not array.size or array.dtype.kind in "OSU":
        return None
    return {**histogram(array), **picture(array, np.zeros_like(array))}


def histogram(array: Array) -> dict[str, Any]:
    """Counts of finite elements (complex ones by magnitude) in equal parts of their range."""
    wide = _wide(array)
    flat = np.abs(wide).reshape(-1) if wide.dtype.kind == "c" else wide.reshape(-1)
    finite = flat[np.isfinite(flat)]
    if not finite.size:
        return {"counts": [], "edges": []}
    low, high = float(finite.min()), float(finite.max())
    # Halves first: the range of two ends of a float64 may be beyond it.
    share = (finite / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)
    counts = np.bincount(np.minimum((share * BINS).astype(np.int64), BINS - 1), minlength=BINS)
    edges = [low * (1 - part / BINS) + high * (part / BINS) for part in range(BINS + 1)]
    return {"counts": counts.tolist(), "edges": [float(f"{edge:.4g}") for edge in edges]}


def picture(ours: Array, theirs: Array) -> dict[str, Any]:
    """How far elements are apart, as a matrix of bytes, of those that fall into one cell the
    largest: rows are all dimensions but the last.

    0 is equal, 1 to 254 by powers of two down from the largest (4 an octave), 255 where one side
    alone is not finite.
    """
    with np.errstate(all="ignore"):
        apart = np.abs(_wide(ours) - _wide(theirs))
    one_sided = np.isfinite(_wide(ours)) != np.isfinite(_wide(theirs))
    apart = np.where(np.isnan(apart), 0.0, apart)
    matrix = apart.reshape(-1, apart.shape[-1]) if apart.ndim > 1 else apart.reshape(1, -1)
    lost = one_sided.reshape(matrix.shape)
    cells = _largest(np.where(np.isfinite(matrix), matrix, 0.0))
    largest = float(cells.max())
    told = np.zeros(cells.shape, dtype=np.uint8)
    if largest:
        with np.errstate(divide="ignore"):
            steps = 254 + 4 * np.log2(cells / largest)
        told = np.where(cells > 0, np.clip(steps, 1, 254), 0).astype(np.uint8)
    told[_largest(lost.astype(np.float64)) > 0] = 255
    return {
        "shape": list(ours.shape),
        "across": cells.shape[1],
        "down": cells.shape[0],
        "cells": base64.b64encode(told.tobytes()).decode(),
        "largest": largest,
        "differing": int(((matrix > 0) | lost).sum()),
        "size": int(matrix.size),
    }


def _wide(array: Array) -> Array:
    return array if array.dtype.kind == "c" else widened(array).astype(np.float64)


def _largest(matrix: Array) -> Array:
    """The matrix with at most SIDE rows and columns, of what falls together the largest."""
    for axis, most in enumerate(SIDE):
        length = matrix.shape[axis]
        starts = np.unique(np.arange(min(most, length)) * length // min(most, length))
        matrix = np.maximum.reduceat(matrix, starts, axis=axis)
    return matrix
