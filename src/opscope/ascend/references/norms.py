# SPDX-License-Identifier: Apache-2.0
"""Normalisations and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .table import Attributes, reference


def _from(x: Any, a: Attributes, name: Any, default: Any = -1) -> Any:
    axis = int(a(name, default)) % x.ndim
    return tuple(range(axis, x.ndim))


@reference("LayerNorm", "LayerNormV3")
def layer_norm(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs x, gamma, beta; outputs y, mean, variance."""
    axes = _from(x[0], a, "begin_norm_axis", 0)
    mean = np.mean(x[0], axis=axes, keepdims=True)
    variance = np.var(x[0], axis=axes, keepdims=True)
    return (x[0] - mean) / np.sqrt(variance + a("epsilon", 1e-7)) * x[1] + x[2], mean, variance


@reference("LayerNormXBackprop", "LayerNormXBackpropV2", "LayerNormGrad")
def layer_norm_gradient(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs dy, x, variance, mean, gamma; the gradient of x (LayerNormGrad: of gamma and beta
    too).
    """
    dy, value, variance, mean, gamma = x[:5]
    axes = tuple(range(value.ndim - gamma.ndim, value.ndim))
    scale = 1 / np.sqrt(variance + a("epsilon", 1e-7))
    normal = (value - mean) * scale
    inner = dy * gamma
    dx = scale * (
        inner
        - np.mean(inner, axis=axes, keepdims=True)
        - normal * np.mean(inner * normal, axis=axes, keepdims=True)
    )
    rest = tuple(range(value.ndim - gamma.ndim))
    return dx, np.sum(dy * normal, axis=rest), np.sum(dy, axis=rest)


@reference("RmsNorm")
def rms_norm(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs x, gamma; outputs y and 1 / rms."""
    axes = tuple(range(x[0].ndim - x[1].ndim, x[0].ndim))
    inverse = 1 / np.sqrt(np.mean(np.square(x[0]), axis=axes, keepdims=True) + a("epsilon", 1e-6))
    return x[0] * inverse * x[1], inverse


@reference("RmsNormGrad")
def rms_norm_gradient(x: Sequence[Any], _: Attributes) -> Any:
    """Inputs dy, x, rstd, gamma; gradients of x and gamma."""
    dy, value, inverse, gamma = x[:4]
    axes = tuple(range(value.ndim - gamma.ndim, value.ndim))
    normal = value * inverse
    inner = dy * gamma
    dx = inverse * (inner - normal * np.mean(inner * normal, axis=axes, keepdims=True))
    return dx, np.sum(dy * normal, axis=tuple(range(value.ndim - gamma.ndim)))


def _channel(x: Any, a: Attributes) -> Any:
    """Axes that are summed over, and the shape of a vector along the channels."""
    channel_axis = x.ndim - 1 if a("data_format", "NHWC") == "NHWC" else 1
    axes = tuple(axis for axis in range(x.ndim) if axis != channel_axis)
    return axes, tuple(-1 if axis == channel_axis else 1 for axis in range(x.ndim))


@reference("BatchNorm", "BatchNormV3")
def batch_norm(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs x, scale, offset, mean, variance; outputs y, batch mean, batch variance (the latter of
    the n - 1 form).
    """
    axes, shape = _channel(x[0], a)
    training = a.flag("is_training", default=True)
    mean = np.mean(x[0], axis=axes) if training else x[3]
    variance = np.var(x[0], axis=axes) if training else x[4]
    y = (x[0] - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + a("epsilon", 1e-4)) * x[
        1
    ].reshape(shape) + x[2].reshape(shape)
    count = x[0].size // mean.size
    return (y, mean, variance * count / max(1, count - 1)) if training else (y,)


@reference("BNInfer", "BNInferenceD", "BatchNormInfer")
def batch_norm_inference(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs x, scale, offset, mean, variance."""
    _, shape = _channel(x[0], a)
    scale, offset, mean, variance = (one.reshape(shape) for one in x[1:5])
    return (x[0] - mean) / np.sqrt(variance + a("epsilon", 1e-4)) * scale + offset


@reference("BNTrainingReduce")
def batch_norm_sums(x: Sequence[Any], a: Attributes) -> Any:
    """Sum and sum of squares over each channel."""
    axes, _ = _channel(x[0], a)
    return np.sum(x[0], axis=axes), np.sum(np.square(x[0]), axis=axes)


@reference("L2Normalize")
def l2_normalize(x: Sequence[Any], a: Attributes) -> Any:
    """x / sqrt(max(sum(x * x), eps)) over axis."""
    axes = a.integers("axis", tuple(range(x[0].ndim))) or tuple(range(x[0].ndim))
    return x[0] / np.sqrt(
        np.maximum(np.sum(np.square(x[0]), axis=axes, keepdims=True), a("eps", 1e-4))
    )


@reference("GroupNorm")
def group_norm(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs x (N, C, …), scale, offset."""
    groups = int(a("num_groups", 2))
    split = x[0].reshape(x[0].shape[0], groups, -1)
    mean, variance = np.mean(split, axis=-1, keepdims=True), np.var(split, axis=-1, keepdims=True)
    normal = ((split - mean) / np.sqrt(variance + a("eps", a("epsilon", 1e-4)))).reshape(x[0].shape)
    shape = (1, -1, *(1,) * (x[0].ndim - 2))
    return normal * x[1].reshape(shape) + x[2].reshape(shape)


@reference("LpNorm", "LpNormV2")
def lp_norm(x: Sequence[Any], a: Attributes) -> Any:
    """(sum |x|^p)^(1/p) over axes."""
    axes = a.integers("axes") or tuple(range(x[0].ndim))
    p = float(a("p", 2))
    keep = a.flag("keepdim")
    return np.sum(np.abs(x[0]) ** p, axis=axes, keepdims=keep) ** (1 / p)


@reference("LayerNormBetaGammaBackprop", "LayerNormBetaGammaBackpropV2")
def layer_norm_parameters(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs dy, x, variance, mean (V2: dy, the normalised x); gradients of gamma and beta, whose
    shape is an attribute.
    """
    shape = a.integers("shape_gamma")
    axes = tuple(range(x[0].ndim - len(shape)))
    normal = x[1] if len(x) == 2 else (x[1] - x[3]) / np.sqrt(x[2] + a("epsilon", 1e-7))
    return np.sum(x[0] * normal, axis=axes).reshape(shape), np.sum(x[0], axis=axes).reshape(shape)


@reference("BNTrainingUpdateGrad")
def batch_norm_parameters(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs dy, x, batch mean, batch variance; gradients of scale and offset."""
    axes, shape = _channel(x[0], a)
    normal = (x[1] - x[2].reshape(shape)) / np.sqrt(x[3].reshape(shape) + a("epsilon", 1e-4))
    return np.sum(x[0] * normal, axis=axes), np.sum(x[0], axis=axes)


@reference("BNTrainingReduceGrad")
def batch_norm_gradient(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs dy, x, gradients of scale and offset, scale, batch mean, batch variance; the gradient
    of x.
    """
    _, shape = _channel(x[0], a)
    dscale, doffset, scale, mean, variance = (one.reshape(shape) for one in x[2:7])
    deviation = np.sqrt(variance + a("epsilon", 1e-4))
    count = x[0].size // x[4].size
    normal = (x[1] - mean) / deviation
    return scale / deviation * (x[0] - doffset / count - normal * dscale / count)


@reference("InstanceNorm")
def instance_norm(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs x, gamma, beta; outputs y, mean, variance over the pixels of each channel."""
    channel_axis = x[0].ndim - 1 if a("data_format", "NDHWC").endswith("C") else 1
    axes = tuple(axis for axis in range(1, x[0].ndim) if axis != channel_axis)
    shape = tuple(-1 if axis == channel_axis else 1 for axis in range(x[0].ndim))
    mean, variance = np.mean(x[0], axis=axes, keepdims=True), np.var(x[0], axis=axes, keepdims=True)
    return (
        (x[0] - mean) / np.sqrt(variance + a("epsilon", 1e-6)) * x[1].reshape(shape)
        + x[2].reshape(shape),
        mean,
        variance,
    )
