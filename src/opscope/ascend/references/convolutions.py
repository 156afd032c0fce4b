# SPDX-License-Identifier: Apache-2.0
"""Two-dimensional convolution and its two gradients, in NCHW or NHWC with weights in NCHW or HWCN,
by sums over the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .table import Attributes, Inapplicable, reference


def _hw(values: Any, layout: Any) -> Any:
    """The two numbers of height and width out of four (or two)."""
    if len(values) == 2:
        return tuple(values)
    if len(values) != 4:
        raise Inapplicable(f"{len(values)} numbers for height and width")
    return (values[1], values[2]) if layout == "NHWC" else (values[2], values[3])


def geometry(a: Attributes) -> Any:
    """Layout, strides, pads (top, bottom, left, right), dilations and groups out of the
    attributes.
    """
    layout = a("data_format", "NHWC")
    pads = a.integers("pads", (0, 0, 0, 0))
    pads = pads if len(pads) == 4 else (pads[0],) * 4
    return (
        layout,
        _hw(a.integers("strides", (1, 1, 1, 1)), layout),
        pads,
        _hw(a.integers("dilations", (1, 1, 1, 1)), layout),
        int(a("groups", 1)),
    )


def _to_nchw(x: Any, layout: Any) -> Any:
    return np.moveaxis(x, -1, 1) if layout == "NHWC" else x


def _from_nchw(x: Any, layout: Any) -> Any:
    return np.moveaxis(x, 1, -1) if layout == "NHWC" else x


def _weight(w: Any, layout: Any) -> Any:
    """Weights as N, C, H, W: beside NHWC tensors they lie as H, W, C, N."""
    return np.transpose(w, (3, 2, 0, 1)) if layout == "NHWC" else w


def _windows(size: Any, kernel: Any, geometry_: Any) -> Any:
    """Output height and width, and the slices of the padded input under each place of the
    kernel.
    """
    _, strides, pads, dilations, _ = geometry_
    out = [
        (size[d] + pads[2 * d] + pads[2 * d + 1] - dilations[d] * (kernel[d] - 1) - 1) // strides[d]
        + 1
        for d in (0, 1)
    ]

    def under(i: Any, j: Any) -> Any:
        top, left = i * dilations[0], j * dilations[1]
        return slice(top, top + strides[0] * (out[0] - 1) + 1, strides[0]), slice(
            left, left + strides[1] * (out[1] - 1) + 1, strides[1]
        )

    return out, under


def forward(x: Any, w: Any, geometry_: Any) -> Any:
    """x (N, C, H, W) with w (O, C / groups, h, w)."""
    _, _, pads, _, groups = geometry_
    out, under = _windows(x.shape[2:], w.shape[2:], geometry_)
    padded = np.pad(x, ((0, 0), (0, 0), pads[:2], pads[2:]))
    count = w.shape[0] // groups
    y = np.zeros((x.shape[0], w.shape[0], *out))
    for group in range(groups):
        source = padded[:, group * w.shape[1] : (group + 1) * w.shape[1]]
        weight = w[group * count : (group + 1) * count]
        for i in range(w.shape[2]):
            for j in range(w.shape[3]):
                rows, columns = under(i, j)
                y[:, group * count : (group + 1) * count] += np.einsum(
                    "nchw,oc->nohw", source[:, :, rows, columns], weight[:, :, i, j]
                )
    return y


def backward(x_shape: Any, w: Any, dy: Any, geometry_: Any, x: Any = None) -> Any:
    """Gradient of the input; with x, that of the weights (whose shape w has)."""
    _, _, pads, _, groups = geometry_
    _, under = _windows(x_shape[2:], w.shape[2:], geometry_)
    height, width = x_shape[2] + pads[0] + pads[1], x_shape[3] + pads[2] + pads[3]
    dx, dw = np.zeros((*x_shape[:2], height, width)), np.zeros(w.shape)
    padded = None if x is None else np.pad(x, ((0, 0), (0, 0), pads[:2], pads[2:]))
    count = w.shape[0] // groups
    for group in range(groups):
        ins, outs = (
            slice(group * w.shape[1], (group + 1) * w.shape[1]),
            slice(group * count, (group + 1) * count),
        )
        for i in range(w.shape[2]):
            for j in range(w.shape[3]):
                rows, columns = under(i, j)
                if padded is None:
                    dx[:, ins, rows, columns] += np.einsum(
                        "nohw,oc->nchw", dy[:, outs], w[outs, :, i, j]
                    )
                else:
                    dw[outs, :, i, j] = np.einsum(
                        "nchw,nohw->oc", padded[:, ins, rows, columns], dy[:, outs]
                    )
    return (
        dx[:, :, pads[0] : pads[0] + x_shape[2], pads[2] : pads[2] + x_shape[3]]
        if padded is None
        else dw
    )


@reference("Conv2D")
def conv2d(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs x, filter, bias."""
    laid_out = geometry(a)
    y = forward(_to_nchw(x[0], laid_out[0]), _weight(x[1], laid_out[0]), laid_out)
    if len(x) > 2 and x[2] is not None:
        y = y + x[2].reshape(1, -1, 1, 1)
    return _from_nchw(y, laid_out[0])


@reference("DepthwiseConv2D")
def depthwise(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs x and filter (multiplier M): H, W, C, M beside NHWC, M, C, H, W beside NCHW."""
    layout, strides, pads, dilations, _ = geometry(a)
    source = _to_nchw(x[0], layout)
    weight = np.transpose(x[1], (2, 3, 0, 1)) if layout == "NHWC" else np.moveaxis(x[1], 0, 1)
    channels, multiplier = weight.shape[:2]
    weight = weight.reshape(channels * multiplier, 1, *weight.shape[2:])
    return _from_nchw(forward(source, weight, (layout, strides, pads, dilations, channels)), layout)


def _size(values: Any) -> Any:
    return tuple(int(value) for value in np.asarray(values).reshape(-1))


def _nchw_shape(shape: Any, layout: Any) -> Any:
    return (shape[0], shape[3], shape[1], shape[2]) if layout == "NHWC" else tuple(shape)


@reference("Conv2DBackpropInput")
def input_gradient(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs input_size, filter, out_backprop."""
    return _input_gradient(_size(x[0]), x[1], x[2], a)


@reference("Conv2DBackpropInputD")
def input_gradient_d(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs filter, out_backprop; attribute input_size."""
    return _input_gradient(a.integers("input_size"), x[0], x[1], a)


def _input_gradient(size: Any, w: Any, dy: Any, a: Attributes) -> Any:
    laid_out = geometry(a)
    dx = backward(
        _nchw_shape(size, laid_out[0]), _weight(w, laid_out[0]), _to_nchw(dy, laid_out[0]), laid_out
    )
    return _from_nchw(dx, laid_out[0])


@reference("Conv2DBackpropFilter")
def filter_gradient(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs x, filter_size, out_backprop."""
    return _filter_gradient(x[0], _size(x[1]), x[2], a)


@reference("Conv2DBackpropFilterD")
def filter_gradient_d(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs x, out_backprop; attribute filter_size."""
    return _filter_gradient(x[0], a.integers("filter_size"), x[1], a)


def _filter_gradient(x: Any, size: Any, dy: Any, a: Attributes) -> Any:
    laid_out = geometry(a)
    shape = _weight(np.zeros(size), laid_out[0])
    source = _to_nchw(x, laid_out[0])
    dw = backward(source.shape, shape, _to_nchw(dy, laid_out[0]), laid_out, source)
    return np.transpose(dw, (2, 3, 1, 0)) if laid_out[0] == "NHWC" else dw
