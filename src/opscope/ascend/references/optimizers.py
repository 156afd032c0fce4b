# SPDX-License-Identifier: Apache-2.0
"""Optimizer steps; the first output is the variable after the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .table import Attributes, reference

reference("ApplyGradientDescent")(lambda x, _: x[0] - x[1] * x[2])
reference("SGD")(lambda x, _: x[0] - x[2] * x[1])


@reference("ApplyMomentum", "ApplyMomentumD")
def momentum(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs var, accum, lr, grad, momentum."""
    var, accum, rate, grad, decay = x[:5]
    accum = accum * decay + grad
    step = grad * rate + accum * decay * rate if a.flag("use_nesterov") else accum * rate
    return var - step, accum


@reference("ApplyAdam", "ApplyAdamD")
def adam(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad."""
    var, m, v, power1, power2, rate, beta1, beta2, epsilon, grad = x[:10]
    rate = rate * np.sqrt(1 - power2) / (1 - power1)
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    top = m * beta1 + grad * (1 - beta1) if a.flag("use_nesterov") else m
    return var - rate * top / (np.sqrt(v) + epsilon), m, v


@reference("ApplyAdagrad", "ApplyAdagradD")
def adagrad(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs var, accum, lr, grad."""
    accum = x[1] + np.square(x[3]) if a.flag("update_slots", default=True) else x[1]
    return x[0] - x[2] * x[3] / np.sqrt(accum), accum


@reference("ApplyRMSProp", "ApplyRMSPropD")
def rms_prop(x: Sequence[Any], a: Attributes) -> Any:
    """Inputs var, ms, mom, lr, [rho, momentum, epsilon,] grad; …D has the three as attributes."""
    var, squares, moment, rate = x[:4]
    decay, inertia, epsilon, grad = (
        x[4:8] if len(x) > 7 else (a("rho"), a("momentum"), a("epsilon"), x[4])
    )
    squares = squares + (np.square(grad) - squares) * (1 - decay)
    moment = moment * inertia + grad * rate / np.sqrt(squares + epsilon)
    return var - moment, squares, moment
