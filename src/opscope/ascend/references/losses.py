# SPDX-License-Identifier: Apache-2.0
"""Losses and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .activations import sigmoid, softmax
from .gathers import inside
from .table import Attributes, reference


def _reduced(loss: Any, a: Attributes) -> Any:
    kind = a("reduction", "mean")
    return np.mean(loss) if kind == "mean" else np.sum(loss) if kind == "sum" else loss


@reference("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(x: Sequence[Any], _: Attributes) -> Any:
    """Loss of each row and softmax minus labels."""
    logits = x[0] - np.max(x[0], axis=-1, keepdims=True)
    normal = np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    return np.sum(x[1] * (normal - logits), axis=-1), softmax(x[0], (-1,)) - x[1]


@reference("SparseSoftmaxCrossEntropyWithLogits")
def sparse_cross_entropy(x: Sequence[Any], _: Attributes) -> Any:
    """The same with one class for each row."""
    labels = np.eye(x[0].shape[-1])[inside(x[1], x[0].shape[-1])]
    return softmax_cross_entropy((x[0], labels), _)


@reference("SigmoidCrossEntropyWithLogits")
def sigmoid_cross_entropy(x: Sequence[Any], _: Attributes) -> Any:
    """max(p, 0) - p * t + log(1 + e^-|p|)."""
    return np.maximum(x[0], 0) - x[0] * x[1] + np.log1p(np.exp(-np.abs(x[0])))


@reference("SigmoidCrossEntropyWithLogitsV2")
def sigmoid_cross_entropy_v2(x: Sequence[Any], a: Attributes) -> Any:
    """The same with optional weight and pos_weight, reduced."""
    weight = x[2] if len(x) > 2 and x[2] is not None else 1
    positive = x[3] if len(x) > 3 and x[3] is not None else 1
    loss = -(positive * x[1] * -np.logaddexp(0, -x[0]) + (1 - x[1]) * -np.logaddexp(0, x[0]))
    return _reduced(loss * weight, a)


reference("SigmoidCrossEntropyWithLogitsGrad")(lambda x, _: (sigmoid(x[0]) - x[1]) * x[2])
reference("MseLoss")(lambda x, a: _reduced(np.square(x[0] - x[1]), a))
reference("LpLoss")(lambda x, a: _reduced(np.abs(x[0] - x[1]), a))
reference("BinaryCrossEntropy")(
    lambda x, a: _reduced(-(x[1] * np.log(x[0]) + (1 - x[1]) * np.log(1 - x[0])), a)
)
reference("KLDiv")(
    lambda x, a: _reduced(
        np.where(x[1] > 0, x[1] * (np.log(np.where(x[1] > 0, x[1], 1)) - x[0]), 0), a
    )
)


@reference("SmoothL1Loss")
def smooth_l1(x: Sequence[Any], a: Attributes) -> Any:
    """Quadratic within sigma, linear beyond."""
    sigma = a("sigma", 1.0)
    distance = np.abs(x[0] - x[1])
    return np.where(distance < sigma, 0.5 * distance**2 / sigma, distance - 0.5 * sigma)


@reference("SmoothL1LossGrad")
def smooth_l1_gradient(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs predict, label, dout."""
    sigma = a("sigma", 1.0)
    return np.clip((x[0] - x[1]) / sigma, -1, 1) * x[2]


@reference("NLLLoss")
def negative_log_likelihood(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs x (log-probabilities), target, weight; the loss and the sum of the weights."""
    ignored = int(a("ignore_index", -100))
    kept = x[1] != ignored
    weight = np.ones(x[0].shape[-1]) if len(x) < 3 or x[2] is None else x[2]
    target = inside(x[1][kept], x[0].shape[-1])
    loss = -weight[target] * x[0][kept, target]
    total = np.sum(weight[target])
    return (np.sum(loss) / total if a("reduction", "mean") == "mean" else np.sum(loss)), total
