# SPDX-License-Identifier: Apache-2.0
"""Pooling and resizing in NCHW or NHWC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .table import Attributes, Inapplicable, reference


def _pooled(function: Any, neutral: Any) -> Any:
    def run(x: Sequence[Any], a: Attributes) -> Any:
        layout = a("data_format", "NHWC")
        source = np.moveaxis(x[0], -1, 1) if layout == "NHWC" else x[0]
        window, strides = (_hw(a.integers(name), layout) for name in ("ksize", "strides"))
        out, before, after = _places(source.shape[2:], window, strides, a("padding", "VALID"))
        padded = np.pad(source, ((0, 0), (0, 0), (before[0], after[0]), (before[1], after[1])), constant_values=neutral)
        down, across = (range(0, strides[d] * out[d], strides[d]) for d in (0, 1))
        rows = [[function(padded[:, :, i : i + window[0], j : j + window[1]]) for j in across] for i in down]
        y = np.moveaxis(np.array(rows), (0, 1), (2, 3))
        return np.moveaxis(y, 1, -1) if layout == "NHWC" else y

    return run


def _hw(values: Any, layout: Any) -> Any:
    return (values[1], values[2]) if layout == "NHWC" else (values[2], values[3])


def _places(size: Any, window: Any, strides: Any, padding: Any) -> Any:
    """Size of the output, pads before and after each of the two dimensions."""
    if padding == "VALID":
        return [(size[d] - window[d]) // strides[d] + 1 for d in (0, 1)], (0, 0), (0, 0)
    if padding != "SAME":
        raise Inapplicable(f"padding {padding}")
    out = [-(-size[d] // strides[d]) for d in (0, 1)]
    total = [max(0, (out[d] - 1) * strides[d] + window[d] - size[d]) for d in (0, 1)]
    return out, [one // 2 for one in total], [one - one // 2 for one in total]


reference("MaxPool")(_pooled(lambda part: np.max(part, axis=(2, 3)), -np.inf))
reference("AvgPool")(_pooled(lambda part: np.nanmean(part, axis=(2, 3)), np.nan))
reference("GlobalAveragePool")(lambda x, _: np.mean(x[0], axis=tuple(range(2, x[0].ndim)), keepdims=True))


@reference("ResizeNearestNeighborV2", "ResizeNearestNeighborV2D")
def nearest(x: Sequence[Any], a: Attributes) -> Any:
    """Nearest neighbours of the plain form (no align_corners, no half pixel centres)."""
    if a.flag("align_corners") or a.flag("half_pixel_centers"):
        raise Inapplicable("align_corners or half_pixel_centers")
    size = a.integers("size") if a("size") is not None else tuple(int(one) for one in x[1].reshape(-1))
    height, width = (2, 3) if a("data_format", "NHWC") == "NCHW" else (1, 2)
    rows, columns = (np.arange(size[d]) * x[0].shape[axis] // size[d] for d, axis in ((0, height), (1, width)))
    return np.take(np.take(x[0], rows, axis=height), columns, axis=width)
