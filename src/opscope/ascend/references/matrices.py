# SPDX-License-Identifier: Apache-2.0
"""Matrix products. Attributes transpose_x1/x2 (MatMul) and adj_x1/x2 (BatchMatMul); an optional
bias is the third input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .table import Attributes, reference


@reference("MatMul", "MatMulV2", "MatMulV3", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def matmul(x: Sequence[Any], a: Attributes) -> Any:
    """x1 @ x2 + bias, either transposed in its last two dimensions."""
    first = np.swapaxes(x[0], -1, -2) if (a.flag("transpose_x1") or a.flag("adj_x1")) else x[0]
    second = np.swapaxes(x[1], -1, -2) if (a.flag("transpose_x2") or a.flag("adj_x2")) else x[1]
    product = first @ second
    return product if len(x) < 3 or x[2] is None else product + x[2]


@reference("GEMM")
def gemm(x: Sequence[Any], a: Attributes) -> Any:
    """alpha * a @ b + beta * c."""
    first = x[0].T if a.flag("transpose_a") else x[0]
    second = x[1].T if a.flag("transpose_b") else x[1]
    return x[3] * (first @ second) + x[4] * x[2]


@reference("FullyConnection")
def fully_connection(x: Sequence[Any], a: Attributes) -> Any:
    """x, flat from `axis` on, times the weight transposed."""
    axis = int(a("axis", 1))
    flat = x[0].reshape(*x[0].shape[:axis], -1)
    weight = x[1].reshape(x[1].shape[0], -1)
    product = flat @ (weight if a.flag("transpose") else weight.T)
    return product if len(x) < 3 or x[2] is None else product + x[2].reshape(-1)


@reference("BiasAdd")
def bias_add(x: Sequence[Any], a: Attributes) -> Any:
    """Adds along the channel dimension: the last one, or the second for NCHW."""
    if a("data_format", "NHWC") == "NCHW" and x[0].ndim > 2:
        return x[0] + x[1].reshape(-1, *(1,) * (x[0].ndim - 2))
    return x[0] + x[1]


@reference("BiasAddGrad")
def bias_add_grad(x: Sequence[Any], a: Attributes) -> Any:
    """Sum over all but the channel dimension."""
    channel = 1 if a("data_format", "NHWC") == "NCHW" and x[0].ndim > 2 else x[0].ndim - 1
    return np.sum(x[0], axis=tuple(axis for axis in range(x[0].ndim) if axis != channel))
