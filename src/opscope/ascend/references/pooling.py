# SPDX-License-Identifier: Apache-2.0
"""Pooling and resizing in NCHW or NHWC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .table import Attributes, Inapplicable, reference


def _pooled(function: Any, neutral: Any, geometry: Any, *, usual: str = "NHWC") -> Any:
    """geometry gives, by the size of an image, the attributes and the layout: window, strides, size
    of the output, pads before and after each of the two dimensions.
    """

    def run(x: Sequence[Any], a: Attributes) -> Any:
        layout = a("data_format", usual)
        source = np.moveaxis(x[0], -1, 1) if layout == "NHWC" else x[0]
        window, strides, out, before, after = geometry(source.shape[2:], a, layout)
        padded = np.pad(
            source,
            ((0, 0), (0, 0), (before[0], after[0]), (before[1], after[1])),
            constant_values=neutral,
        )
        down, across = (range(0, strides[d] * out[d], strides[d]) for d in (0, 1))
        rows = [
            [function(padded[:, :, i : i + window[0], j : j + window[1]]) for j in across]
            for i in down
        ]
        y = np.moveaxis(np.array(rows), (0, 1), (2, 3))
        return np.moveaxis(y, 1, -1) if layout == "NHWC" else y

    return run


def _greatest(part: Any) -> Any:
    return np.max(part, axis=(2, 3))


def _average(part: Any) -> Any:
    return np.nanmean(part, axis=(2, 3))


def _of_padding(size: Any, a: Attributes, layout: Any) -> Any:
    window, strides = (_hw(a.integers(name), layout) for name in ("ksize", "strides"))
    return window, strides, *_places(size, window, strides, a("padding", "VALID"))


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


reference("MaxPool")(_pooled(_greatest, -np.inf, _of_padding))
reference("AvgPool")(_pooled(_average, np.nan, _of_padding))
reference("GlobalAveragePool")(
    lambda x, _: np.mean(x[0], axis=tuple(range(2, x[0].ndim)), keepdims=True)
)


@reference("ResizeNearestNeighborV2", "ResizeNearestNeighborV2D")
def nearest(x: Sequence[Any], a: Attributes) -> Any:
    """Nearest neighbours of the plain form (no align_corners, no half pixel centres)."""
    if a.flag("align_corners") or a.flag("half_pixel_centers"):
        raise Inapplicable("align_corners or half_pixel_centers")
    size = (
        a.integers("size") if a("size") is not None else tuple(int(one) for one in x[1].reshape(-1))
    )
    height, width = (2, 3) if a("data_format", "NHWC") == "NCHW" else (1, 2)
    rows, columns = (
        np.arange(size[d]) * x[0].shape[axis] // size[d] for d, axis in ((0, height), (1, width))
    )
    return np.take(np.take(x[0], rows, axis=height), columns, axis=width)


def _geometry(size: Any, window: Any, strides: Any, a: Attributes) -> Any:
    """Size of the output and pads by the mode of the …V2 and …V3 types: SAME, VALID, or CALCULATED
    from pads and ceil_mode.
    """
    mode = a("padding_mode", "CALCULATED")
    if mode != "CALCULATED":
        return _places(size, window, strides, mode)
    pads = a.integers("pads", (0, 0, 0, 0))
    before, after = (pads[0], pads[2]), [pads[1], pads[3]]
    out = []
    for d in (0, 1):
        free = size[d] + before[d] + after[d] - window[d]
        count = (-(-free // strides[d]) if a.flag("ceil_mode") else free // strides[d]) + 1
        if a.flag("ceil_mode") and (count - 1) * strides[d] >= size[d] + before[d]:
            count -= 1  # no window begins beyond the input and its pads
        out.append(count)
        after[d] = max(after[d], (count - 1) * strides[d] + window[d] - size[d] - before[d])
    return out, before, tuple(after)


def _of_mode(size: Any, a: Attributes, layout: Any) -> Any:
    if a.flag("global_pooling"):
        return size, (1, 1), (1, 1), (0, 0), (0, 0)
    window, strides = (_hw(a.integers(name), layout) for name in ("ksize", "strides"))
    return window, strides, *_geometry(size, window, strides, a)


reference("MaxPoolV3")(_pooled(_greatest, -np.inf, _of_mode, usual="NCHW"))


@reference("AvgPoolV2")
def average_v2(x: Sequence[Any], a: Attributes) -> Any:
    """Average pooling whose pads do not count (exclusive); the other kind differs between
    versions.
    """
    if not a.flag("exclusive", default=True) and any(a.integers("pads", (0,))):
        raise Inapplicable("exclusive is false and there are pads")
    return _pooled(_average, np.nan, _of_mode, usual="NCHW")(x, a)
