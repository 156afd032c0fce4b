# SPDX-License-Identifier: Apache-2.0
"""Operators that work element by element, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .table import TABLE, Attributes, one, reference

_BINARY = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Pow": np.power,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "LogicalAnd": np.logical_and,
    "LogicalOr": np.logical_or,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Atan2": np.arctan2,
    "FloorMod": np.mod,
    "FloorDiv": np.floor_divide,
}
_UNARY: dict[str, Callable[..., Any]] = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Log": np.log,
    "Log1p": np.log1p,
    "Sqrt": np.sqrt,
    "Square": np.square,
    "Sign": np.sign,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.round,
    "Rint": np.rint,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Tanh": np.tanh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "LogicalNot": np.logical_not,
    "Invert": np.invert,
    "IsNan": np.isnan,
    "IsInf": np.isinf,
    "IsFinite": np.isfinite,
    "ZerosLike": np.zeros_like,
    "OnesLike": np.ones_like,
    "Identity": np.array,
}

TABLE.update({name: one(function, 2) for name, function in _BINARY.items()})
TABLE.update({name: one(function) for name, function in _UNARY.items()})
reference("Rsqrt")(lambda x, _: 1 / np.sqrt(x[0]))
reference("Reciprocal", "Inv")(lambda x, _: 1 / x[0])
reference("SquaredDifference")(lambda x, _: np.square(x[0] - x[1]))
reference("DivNoNan")(lambda x, _: np.where(x[1] == 0, 0, x[0] / np.where(x[1] == 0, 1, x[1])))
reference("Xdivy")(lambda x, _: np.where(x[0] == 0, 0, x[0] / x[1]))
reference("Xlogy")(lambda x, _: np.where(x[0] == 0, 0, x[0] * np.log(x[1])))
reference("AddN", "AccumulateNV2")(lambda x, _: np.sum(np.stack(x), axis=0))
reference("Adds")(lambda x, a: x[0] + a("value", 0))
reference("Muls")(lambda x, a: x[0] * a("value", 0))
reference("Axpy")(lambda x, a: x[0] + x[1] * a("alpha", 1))
reference("Maxs", "MaximumS")(lambda x, a: np.maximum(x[0], a("value", 0)))
reference("Assign")(lambda x, _: x[1])
reference("AssignAdd")(lambda x, _: x[0] + x[1])
reference("AssignSub")(lambda x, _: x[0] - x[1])
reference("Select", "SelectV2")(lambda x, _: np.where(x[0], x[1], x[2]))
reference("ClipByValue", "ClipByValueV2")(lambda x, _: np.clip(x[0], x[1], x[2]))
reference("Addcmul")(lambda x, _: x[0] + x[3] * x[1] * x[2])
reference("Addcdiv")(lambda x, _: x[0] + x[3] * x[1] / x[2])
reference("Lerp")(lambda x, _: x[0] + x[2] * (x[1] - x[0]))
reference("MulNoNan")(lambda x, _: np.where(x[1] == 0, 0, x[0] * x[1]))
reference("SqrtGrad")(lambda x, _: 0.5 * x[1] / x[0])
reference("RsqrtGrad")(lambda x, _: -0.5 * x[1] * x[0] ** 3)
reference("ReciprocalGrad", "InvGrad")(lambda x, _: -x[1] * x[0] * x[0])
reference("TanhGrad")(lambda x, _: x[1] * (1 - x[0] * x[0]))
reference("SigmoidGrad")(lambda x, _: x[1] * x[0] * (1 - x[0]))
reference("AbsGrad")(lambda x, _: np.sign(x[0]) * x[1])


@reference("RealDiv", "Div")
def divide(x: Sequence[Any], _: Attributes) -> Any:
    """x / y; integers round toward zero."""
    if x[0].dtype.kind in "iu":
        return np.trunc(x[0].astype(np.float64) / x[1]).astype(x[0].dtype)
    return x[0] / x[1]


@reference("Mod", "TruncateMod")
def remainder(x: Sequence[Any], _: Attributes) -> Any:
    """Remainder with the sign of the dividend."""
    return np.fmod(x[0], x[1])


_CAST = {
    0: np.float32,
    1: np.float16,
    2: np.int8,
    3: np.int32,
    4: np.uint8,
    6: np.int16,
    7: np.uint16,
    8: np.uint32,
    9: np.int64,
    10: np.uint64,
    11: np.float64,
    12: np.bool_,
}


@reference("Cast")
def cast(x: Sequence[Any], a: Attributes) -> Any:
    """Conversion to attribute dst_type, a number of the graph engine; floats are cut toward zero
    for integers.
    """
    wanted = a("dst_type")
    if wanted not in _CAST:
        return x[0]
    dtype = np.dtype(_CAST[wanted])
    return x[0].astype(dtype)
