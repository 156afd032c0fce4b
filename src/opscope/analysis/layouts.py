# SPDX-License-Identifier: Apache-2.0
"""Two arrays of different frameworks in one layout: the order of axes in which they agree best (NCHW and NHWC, a weight turned)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from opscope.kernels.pair import Pair

MAX_AXES = 5
_AGREES = 1e-3  # a layout in which the norms of difference and golden are so far apart is the right one; no other is tried


def best_pair(target: NDArray[np.generic], golden: NDArray[np.generic]) -> Pair | None:
    """Metrics of two arrays in the layout in which they differ least; None where no order of axes gives one the other's shape.

    Arrays of one size whose axes are merged otherwise (a flattened feature map) are compared in the order of their elements.
    """
    from opscope.kernels.pair import pair

    best: Pair | None = None
    for candidate in _layouts(target, golden.shape):
        found = pair(candidate, golden)
        if best is None or _error(found) < _error(best):
            best = found
        if _error(best) <= _AGREES:
            break
    return best


def _layouts(target: NDArray[Any], shape: tuple[int, ...]) -> Iterator[NDArray[Any]]:
    import numpy as np

    if target.shape == shape:
        yield target
    if target.ndim == len(shape) <= MAX_AXES and sorted(target.shape) == sorted(shape):
        for axes in list(permutations(range(target.ndim)))[1:]:
            if tuple(target.shape[axis] for axis in axes) == shape:
                yield np.ascontiguousarray(target.transpose(axes))
    elif target.size == int(np.prod(shape, dtype=np.int64)):
        yield np.ascontiguousarray(target).reshape(shape)


def _error(found: Pair) -> float:
    if found.nonfinite_mismatch:
        return float("inf")
    if found.differing == 0 or found.max_abs is None:
        return 0.0
    return float("inf") if found.relative_euclidean is None else found.relative_euclidean
