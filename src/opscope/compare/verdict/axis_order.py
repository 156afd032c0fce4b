# SPDX-License-Identifier: Apache-2.0
"""Two arrays of different frameworks in one layout: the order of axes in which they agree best
(NCHW and NHWC, a weight turned).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from opscope.arrays import Array
    from opscope.kernels.pair import Pair

MAX_AXES = 4  # 24 orders
MAX_SORTED = 10_000_000
# a layout in which the norms of difference and golden are so far apart is the right one; no other
# is tried
_AGREES = 1e-3


def best_pair(
    target: NDArray[np.generic], golden: NDArray[np.generic], *, any_order: bool = False
) -> Pair | None:
    """Metrics of two arrays in the layout in which they differ least; None where their sizes
    differ.

    Axes may be turned, merged or split. any_order: where no such layout makes them agree, but their
    elements in rising order do, they are one (what an operator reads may be laid out as no order of
    axes tells).
    """
    from opscope.kernels.pair import pair

    best: Pair | None = None
    if target.size != golden.size:
        return None
    for candidate in _layouts(target, golden.shape):
        metrics = pair(candidate, golden)
        if best is None or _error(metrics) < _error(best):
            best = metrics
        if _error(best) <= _AGREES:
            return best
    if any_order and target.size <= MAX_SORTED:
        metrics = pair(_sorted(target), _sorted(golden))
        if _error(metrics) <= _AGREES:
            return metrics
    return best


def _sorted(array: Array) -> Array:
    """The elements in rising order."""
    import numpy as np

    from opscope.narrow import as_type, widened

    return as_type(np.sort(widened(array), axis=None), array.dtype)


def _layouts(target: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    """The target as an array of this shape: as it is, its axes turned and then merged, or split and
    then turned.
    """
    import numpy as np

    yield np.ascontiguousarray(target).reshape(shape)
    if target.ndim > MAX_AXES or len(shape) > MAX_AXES:
        return
    same = target.ndim == len(shape)
    for axes in list(permutations(range(target.ndim)))[1:]:
        if not same or tuple(target.shape[axis] for axis in axes) == shape:
            yield np.ascontiguousarray(target.transpose(axes)).reshape(shape)
    if not same:
        for axes in list(permutations(range(len(shape))))[1:]:
            split = np.ascontiguousarray(target).reshape([shape[axis] for axis in axes])
            yield np.ascontiguousarray(split.transpose(np.argsort(axes)))


def _error(metrics: Pair) -> float:
    if metrics.nonfinite_mismatch:
        return float("inf")
    if metrics.differing == 0 or metrics.max_abs is None:
        return 0.0
    return float("inf") if metrics.relative_euclidean is None else metrics.relative_euclidean
