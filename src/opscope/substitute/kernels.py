# SPDX-License-Identifier: Apache-2.0
"""Kernels of MindSpore and GE by their own names, in PyTorch: what a dump of these holds is enough
to call them again.

Attributes arrive as keyword arguments under MindSpore's names; those that do not change the result
are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

Tensor = torch.Tensor


def conv2d(x: Tensor, weight: Tensor, *rest: Any, **attributes: Any) -> Tensor:
    """Conv2D in NCHW; pad_mode same, valid or pad with pad_list (top, bottom, left, right)."""
    _layout(attributes)
    bias = next((each for each in rest if isinstance(each, Tensor)), None)
    stride, dilation = _pair(attributes.get("stride", 1)), _pair(attributes.get("dilation", 1))
    mode = str(attributes.get("pad_mode", "valid")).lower()
    if mode == "same":
        padding = [0, 0, 0, 0]
        for axis in (1, 0):
            size, kernel = x.shape[2 + axis], (weight.shape[2 + axis] - 1) * dilation[axis] + 1
            total = max((-(-size // stride[axis]) - 1) * stride[axis] + kernel - size, 0)
            padding[2 * (1 - axis)], padding[2 * (1 - axis) + 1] = total // 2, total - total // 2
        x = functional.pad(x, padding)
    elif mode == "pad":
        top, bottom, left, right = (
            int(each)
            for each in (attributes.get("pad_list") or attributes.get("pad") or (0, 0, 0, 0))
        )
        x = functional.pad(x, (left, right, top, bottom))
    return functional.conv2d(
        x,
        weight,
        bias,
        stride,
        0,
        dilation,
        int(attributes.get("group", attributes.get("groups", 1))),
    )


def matmul(a: Tensor, b: Tensor, *flags: Any, **attributes: Any) -> Tensor:
    """MatMul and BatchMatMul with transpose_a and transpose_b."""
    turned = [each for each in flags if isinstance(each, bool)]
    first = attributes.get(
        "transpose_a", attributes.get("transpose_x1", turned[0] if turned else False)
    )
    second = attributes.get(
        "transpose_b", attributes.get("transpose_x2", turned[1] if len(turned) > 1 else False)
    )
    bias = next((each for each in flags if isinstance(each, Tensor)), None)
    product = torch.matmul(
        a.transpose(-1, -2) if first else a, b.transpose(-1, -2) if second else b
    )
    return product if bias is None else product + bias


def bias_add(x: Tensor, bias: Tensor, *_: Any, **attributes: Any) -> Tensor:
    _layout(attributes)
    return x + (bias.reshape(-1, *[1] * (x.dim() - 2)) if x.dim() > 1 else bias)


def _layout(attributes: dict[str, Any]) -> None:
    layout = str(attributes.get("format", attributes.get("data_format", "NCHW")))
    if layout not in ("NCHW", "DefaultFormat", "0", "ND"):
        raise NotImplementedError(f"in the layout {layout} it is not made again")


def _pair(value: Any) -> tuple[int, int]:
    numbers = [int(each) for each in value] if isinstance(value, Sequence) else [int(value)] * 2
    return (numbers[-2], numbers[-1]) if len(numbers) > 1 else (numbers[0], numbers[0])


def sort(x: Tensor, *_: Any, **attributes: Any) -> Tensor:
    """The values that Sort gives, along axis; NaN last."""
    axis, descending = attributes.get("axis", -1), attributes.get("descending", False)
    return torch.sort(x, dim=int(axis), descending=bool(descending)).values


def _plain(function: Callable[..., Any], tensors: int) -> Callable[..., Any]:
    """A function of so many tensors that no attribute changes."""

    def run(*given: Any, **attributes: Any) -> Any:  # noqa: ARG001 - attributes say how it was compiled
        return function(*given[:tensors])

    return run


# Taken element by element: the kernel's own name -> a function of its tensors alone.
UNARY: dict[str, Callable[..., Any]] = {
    "ReLU": torch.relu,
    "ReLU6": functional.relu6,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "Exp": torch.exp,
    "Expm1": torch.expm1,
    "Log": torch.log,
    "Log1p": torch.log1p,
    "Sqrt": torch.sqrt,
    "Rsqrt": torch.rsqrt,
    "Square": torch.square,
    "Neg": torch.neg,
    "Abs": torch.abs,
    "Reciprocal": torch.reciprocal,
    "Erf": torch.erf,
    "Sign": torch.sign,
    "SiLU": functional.silu,
    "Floor": torch.floor,
    "Ceil": torch.ceil,
    "Sin": torch.sin,
    "Cos": torch.cos,
    "Tan": torch.tan,
    "Asin": torch.asin,
    "ACos": torch.acos,
    "Atan": torch.atan,
    "Sinh": torch.sinh,
    "Cosh": torch.cosh,
    "Asinh": torch.asinh,
    "Acosh": torch.acosh,
    "Atanh": torch.atanh,
    "Erfc": torch.erfc,
    "Erfinv": torch.erfinv,
    "Softplus": lambda x: torch.logaddexp(x, torch.zeros((), dtype=x.dtype)),
    "LogicalNot": torch.logical_not,
}
BINARY: dict[str, Callable[..., Any]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Muls": torch.mul,
    "RealDiv": torch.div,
    "Div": torch.div,
    "Maximum": torch.maximum,
    "Minimum": torch.minimum,
    "Pow": torch.pow,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "Less": torch.lt,
    "GreaterEqual": torch.ge,
    "LessEqual": torch.le,
    "NotEqual": torch.ne,
    "LogicalAnd": torch.logical_and,
    "LogicalOr": torch.logical_or,
}
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{name: _plain(function, 1) for name, function in UNARY.items()},
    **{name: _plain(function, 2) for name, function in BINARY.items()},
    "Select": _plain(torch.where, 3),
}
# The kernel's own name -> a function of its tensors, then its attributes.
KERNELS: dict[str, Callable[..., Any]] = {
    "Conv2D": conv2d,
    "MatMul": matmul,
    "BatchMatMul": matmul,
    "MatMulV2": matmul,
    "BatchMatMulV2": matmul,
    "BiasAdd": bias_add,
    "AddN": lambda *given, **_: torch.stack(
        [each for each in given if isinstance(each, Tensor)]
    ).sum(0),
    "ReluGrad": lambda grad, y, **_: grad * (y > 0),
    "ReLUGrad": lambda grad, y, **_: grad * (y > 0),
    "SigmoidGrad": lambda y, grad, **_: grad * y * (1 - y),
    "TanhGrad": lambda y, grad, **_: grad * (1 - y * y),
    "BiasAddGrad": lambda grad, *_, **__: grad.sum(
        [axis for axis in range(grad.dim()) if axis != 1]
    ),
    **ELEMENTWISE,
}
