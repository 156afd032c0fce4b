# SPDX-License-Identifier: Apache-2.0
"""Reductions, arg-extremes, cumulative operators. Axes come as an input (ReduceSum) or an attribute
(ReduceSumD).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .table import Attributes, axes_of, reference

_REDUCTIONS = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceAny": np.any,
    "ReduceAll": np.all,
}


def _reduced(function: Any) -> Any:
    return lambda x, a: function(x[0], axis=axes_of(x, a), keepdims=a.flag("keep_dims"))


for _name, _function in _REDUCTIONS.items():
    reference(_name, f"{_name}D")(_reduced(_function))

reference("L2Loss")(lambda x, _: np.sum(np.square(x[0])) / 2)
reference("SquareSumV1", "SquareSumAll")(
    lambda x, a: np.sum(
        np.square(x[0]), axis=axes_of(x[:1], a), keepdims=a.flag("keep_dims", default=True)
    )
)
reference("ReduceEuclideanNorm")(
    lambda x, a: np.sqrt(np.sum(np.square(x[0]), axis=axes_of(x, a), keepdims=a.flag("keep_dims")))
)
reference("ReduceLogSumExp")(
    lambda x, a: np.log(np.sum(np.exp(x[0]), axis=axes_of(x, a), keepdims=a.flag("keep_dims")))
)


def _axis(x: Any, a: Attributes) -> Any:
    if len(x) > 1 and x[1] is not None:
        return int(x[1].reshape(-1)[0])
    return int(next((a(name) for name in ("dimension", "axis") if a(name) is not None), 0))


reference("ArgMaxV2", "ArgMaxD", "ArgMax")(lambda x, a: np.argmax(x[0], axis=_axis(x, a)))
reference("ArgMin", "ArgMinD", "ArgMinV2")(lambda x, a: np.argmin(x[0], axis=_axis(x, a)))


def _cumulative(function: Any, neutral: Any) -> Any:
    def run(x: Sequence[Any], a: Attributes) -> Any:
        axis = _axis(x, a)
        values = np.flip(x[0], axis) if a.flag("reverse") else x[0]
        sums = function(values, axis=axis)
        if a.flag("exclusive"):
            sums = np.roll(sums, 1, axis)
            first = [slice(None)] * sums.ndim
            first[axis] = slice(0, 1)
            sums[tuple(first)] = neutral
        return np.flip(sums, axis) if a.flag("reverse") else sums

    return run


reference("Cumsum", "CumsumD")(_cumulative(np.cumsum, 0))
reference("Cumprod", "CumprodD")(_cumulative(np.cumprod, 1))
