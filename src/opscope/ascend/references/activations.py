# SPDX-License-Identifier: Apache-2.0
"""Activations and their gradients, softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .table import Attributes, reference

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x) without overflow."""
    return np.where(
        x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))
    )


def softmax(x: Any, axes: Any) -> Any:
    """Softmax over axes."""
    shifted = np.exp(x - np.max(x, axis=axes, keepdims=True))
    return shifted / np.sum(shifted, axis=axes, keepdims=True)


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


reference("Sigmoid")(lambda x, _: sigmoid(x[0]))
reference("Erf")(lambda x, _: erf(x[0]))
reference("Erfc")(lambda x, _: 1 - erf(x[0]))
reference("Relu")(lambda x, _: np.maximum(x[0], 0))
reference("Relu6")(lambda x, _: np.clip(x[0], 0, 6))
reference("LeakyRelu")(lambda x, a: np.where(x[0] > 0, x[0], x[0] * a("negative_slope", 0.0)))
reference("PRelu")(lambda x, _: np.where(x[0] > 0, x[0], x[0] * x[1]))
reference("Elu")(
    lambda x, a: np.where(x[0] > 0, x[0], a("alpha", 1.0) * np.expm1(np.minimum(x[0], 0)))
)
reference("Selu")(
    lambda x, _: (
        1.0507009873554805
        * np.where(x[0] > 0, x[0], 1.6732632423543772 * np.expm1(np.minimum(x[0], 0)))
    )
)
reference("Softplus")(lambda x, _: np.logaddexp(x[0], 0))
reference("Softsign")(lambda x, _: x[0] / (1 + np.abs(x[0])))
reference("Swish")(lambda x, a: x[0] * sigmoid(a("scale", 1.0) * x[0]))
reference("Mish")(lambda x, _: x[0] * np.tanh(np.logaddexp(x[0], 0)))
reference("HardSwish")(lambda x, _: x[0] * np.clip(x[0] + 3, 0, 6) / 6)
reference("HardSigmoid")(lambda x, a: np.clip(a("alpha", 1 / 6) * x[0] + a("beta", 0.5), 0, 1))
reference("Gelu")(lambda x, _: _gelu_tanh(x[0]))
reference("GeluV2")(
    lambda x, a: (
        _gelu_tanh(x[0])
        if a("approximate", "none") == "tanh"
        else 0.5 * x[0] * (1 + erf(x[0] / math.sqrt(2)))
    )
)
reference("FastGelu", "FastGeluV2")(lambda x, _: x[0] * sigmoid(1.702 * x[0]))
reference("ReluGrad")(lambda x, _: np.where(x[1] > 0, x[0], 0))
reference("Relu6Grad")(lambda x, _: np.where((x[1] > 0) & (x[1] < 6), x[0], 0))
reference("LeakyReluGrad")(lambda x, a: np.where(x[1] > 0, x[0], x[0] * a("negative_slope", 0.0)))
reference("EluGrad")(lambda x, _: np.where(x[1] < 0, x[0] * (x[1] + 1), x[0]))
reference("SoftplusGrad")(lambda x, _: x[0] * sigmoid(x[1]))


@reference("GeluGrad")
def gelu_grad(x: Sequence[Any], _: Attributes) -> Any:
    """Gradient of the tanh form: inputs dy, x, y."""
    dy, value = x[0], x[1]
    inner = math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)
    tanh = np.tanh(inner)
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * value**2)
    return dy * (0.5 * (1 + tanh) + 0.5 * value * (1 - tanh**2) * slope)


def _axes(a: Attributes, name: Any, x: Any) -> Any:
    return tuple(axis % x.ndim for axis in a.integers(name, (-1,)))


reference("SoftmaxV2", "Softmax")(lambda x, a: softmax(x[0], _axes(a, "axes", x[0])))


@reference("LogSoftmaxV2", "LogSoftmax")
def log_softmax(x: Sequence[Any], a: Attributes) -> Any:
    """x - log(sum(exp(x))) over axes."""
    axes = _axes(a, "axes", x[0])
    shifted = x[0] - np.max(x[0], axis=axes, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axes, keepdims=True))


@reference("SoftmaxGrad")
def softmax_grad(x: Sequence[Any], a: Attributes) -> Any:
    """(dy - sum(dy * y)) * y; inputs y, dy."""
    axes = _axes(a, "axes", x[0])
    return (x[1] - np.sum(x[0] * x[1], axis=axes, keepdims=True)) * x[0]


@reference("LogSoftmaxGrad")
def log_softmax_grad(x: Sequence[Any], a: Attributes) -> Any:
    """dy - exp(y) * sum(dy); inputs dy, y."""
    axes = _axes(a, "axis", x[0])
    return x[0] - np.exp(x[1]) * np.sum(x[0], axis=axes, keepdims=True)


@reference("SwishGrad")
def swish_gradient(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs dy, x."""
    scale = float(a("scale", 1.0))
    inner = 1 / (1 + np.exp(-scale * x[1]))
    return x[0] * (inner + scale * x[1] * inner * (1 - inner))


@reference("HardSwishGrad")
def hard_swish_gradient(x: Sequence[Any], _: Attributes) -> Any:
    """Inputs dy, x."""
    return x[0] * np.where(x[1] <= -3, 0, np.where(x[1] >= 3, 1, x[1] / 3 + 0.5))


@reference("SwiGlu")
def swiglu(x: Sequence[Any], a: Attributes) -> Any:
    """The first half of dim, by its sigmoid, times the second."""
    first, second = np.split(x[0], 2, axis=int(a("dim", -1)))
    return first / (1 + np.exp(-first)) * second
