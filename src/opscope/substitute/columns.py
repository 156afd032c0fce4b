# SPDX-License-Identifier: Apache-2.0
"""Numbers of one output beside the trusted one, under the names that users of msprobe's accuracy checker know.

Definitions are those of the metrics in kernels/metrics; the shares are of elements whose relative error is below the bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from opscope.substitute.examine import as_array, dtype_name


def columns_of(target: torch.Tensor, golden: torch.Tensor) -> dict[str, Any]:
    """Columns of the standard checker's details file for one output, numbers as floats, None where they do not apply."""
    found: dict[str, Any] = {
        "Bench Dtype": f"torch.{dtype_name(golden)}", "DEVICE Dtype": f"torch.{dtype_name(target)}", "Shape": list(target.shape),
    }  # fmt: skip
    if target.shape != golden.shape or target.numel() == 0:
        return found
    here, there = as_array(target).reshape(-1), as_array(golden).reshape(-1)
    if not (target.dtype.is_floating_point or target.dtype.is_complex):
        found["二进制一致错误率"] = float(np.mean(here != there))
        return found
    with np.errstate(all="ignore"):
        odd = np.isfinite(here) != np.isfinite(there)
        both = np.isfinite(here) & np.isfinite(there)
        found["inf/nan错误率"] = float(np.mean(odd))
        return {**found, **_finite(here[both], there[both])} if both.any() else found


def _finite(here: Any, there: Any) -> dict[str, float]:
    error = np.abs(here - there)
    relative = error / (np.abs(there) + np.finfo(np.float32).eps)
    norms = float(np.linalg.norm(here) * np.linalg.norm(there))
    cosine = float(np.real(np.vdot(there, here))) / norms if norms > 0 else float(np.array_equal(here, there))
    signed = np.real(here - there)
    return {
        "余弦相似度": cosine,
        "最大绝对误差": float(error.max()),
        "双百指标": float(np.mean(relative < 1e-2)),
        "双千指标": float(np.mean(relative < 1e-3)),
        "双万指标": float(np.mean(relative < 1e-4)),
        "误差均衡性": abs(float((signed > 0).sum()) - float((signed < 0).sum())) / signed.size,
        "均方根误差": float(np.sqrt(np.mean(np.square(error)))),
        "相对误差最大值": float(relative.max()),
        "相对误差平均值": float(relative.mean()),
    }
