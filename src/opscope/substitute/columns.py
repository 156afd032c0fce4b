# SPDX-License-Identifier: Apache-2.0
"""Numbers of one output beside the trusted one, under the names that users of msprobe's accuracy
checker know.

Definitions and thresholds are that checker's (msprobe 26.2, api_accuracy_checker: algorithm.py,
standard_config.py), by the element
type of the target: r = |t - g| / (|g| + eps), eps that of the golden's type, 2**-8 for bfloat16;
small values are those up to a threshold, relative errors are of the others; an error in ULPs is |t
- g| 2**(digits - e), e the exponent of g, 0 where g is 0.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import torch

from opscope.arrays import Array
from opscope.substitute.arguments import dtype_name
from opscope.substitute.truth import as_array


class Standard(msgspec.Struct, frozen=True):
    """Thresholds of one element type.

    small: which values are small; off: how far a small one may be off (of the dual standard),
    within: of the absolute standard;
    relative: of the others; least and digits: smallest exponent and stored digits, ulp: ULPs beyond
    which an element counts.
    """

    small: float
    off: float
    within: float
    relative: float
    least: int
    digits: int
    ulp: int


STANDARDS = {
    "float16": Standard(2.0**-10, 1e-16, 2.0**-16, 2.0**-10, -14, 10, 1),
    "bfloat16": Standard(2.0**-10, 1e-16, 1e-16, 2.0**-8, -126, 7, 1),
    "float32": Standard(2.0**-20, 2.0**-30, 2.0**-30, 2.0**-20, -126, 23, 32),
}


def columns_of(target: torch.Tensor, golden: torch.Tensor) -> dict[str, Any]:
    """Columns of the standard checker's details file for one output, numbers as floats, None where
    they do not apply.
    """
    cells: dict[str, Any] = {
        "Bench Dtype": f"torch.{dtype_name(golden)}",
        "DEVICE Dtype": f"torch.{dtype_name(target)}",
        "Shape": list(target.shape),
    }
    if target.shape != golden.shape or target.numel() == 0:
        return cells
    here, there = as_array(target).reshape(-1), as_array(golden).reshape(-1)
    if not (target.dtype.is_floating_point or target.dtype.is_complex):
        cells["二进制一致错误率"] = float(np.mean(here != there))
        return cells
    with np.errstate(all="ignore"):
        odd = np.isfinite(here) != np.isfinite(there)
        both = np.isfinite(here) & np.isfinite(there)
        cells["inf/nan错误率"] = float(np.mean(odd))
        if not both.any():
            return cells
        eps = 2.0**-8 if target.dtype is torch.bfloat16 else torch.finfo(golden.dtype).eps
        standard = STANDARDS.get(dtype_name(target))
        return {**cells, **_finite(here[both], there[both], eps, standard)}


def _finite(here: Array, there: Array, eps: float, standard: Standard | None) -> dict[str, float]:
    error, size = np.abs(here - there), np.abs(there)
    relative = error / (size + eps)
    small = size <= (standard or STANDARDS["float32"]).small
    normal = relative[~small]
    norms = float(np.linalg.norm(here) * np.linalg.norm(there))
    cosine = (
        float(np.real(np.vdot(there, here))) / norms
        if norms > 0
        else float(np.array_equal(here, there))
    )
    rounded = (
        there
        if standard is None or standard.digits == 7
        else there.astype(np.float16 if standard.digits == 10 else np.float32)
    )
    signed = np.real(here - rounded)
    cells = {
        "余弦相似度": cosine,
        "最大绝对误差": float(error.max()),
        "双百指标": float(np.mean(relative < 1e-2)),
        "双千指标": float(np.mean(relative < 1e-3)),
        "双万指标": float(np.mean(relative < 1e-4)),
        "误差均衡性": abs(float((signed > 0).sum()) - float((signed < 0).sum())) / signed.size,
        "均方根误差": float(np.sqrt(np.mean(np.square(error)))),
        "相对误差最大值": float(normal.max(initial=0.0)),
        "相对误差平均值": _mean(normal),
    }
    return (
        cells if standard is None else {**cells, **_by_thresholds(error, size, relative, standard)}
    )


def _by_thresholds(
    error: Array, size: Array, relative: Array, standard: Standard
) -> dict[str, float]:
    """Columns that only the thresholds of an element type define."""
    small = size <= standard.small
    exponent = np.maximum(
        np.where(size == 0, 0.0, np.floor(np.log2(np.where(size == 0, 1.0, size)))), standard.least
    )
    ulps = error * np.exp2(standard.digits - exponent)
    return {
        "小值域错误占比": _mean(error[small] > standard.off),
        "相对误差错误率": _mean(relative[~small] > standard.relative),
        "绝对误差错误率": _mean(error[small] > standard.within),
        "ULP误差最大值": float(ulps.max()),
        "ULP误差平均值": float(ulps.mean()),
        "ULP误差大于阈值占比": _mean(ulps > standard.ulp),
    }


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else 0.0
