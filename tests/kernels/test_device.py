# SPDX-License-Identifier: Apache-2.0
"""Statistics by tensor operators equal those of the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from opscope import kernels  # noqa: E402 - after the skip
from opscope.kernels.device import from_device, on_device  # noqa: E402

TYPES = [
    "bool", "int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2",
    "complex64", "complex128",
]  # fmt: skip


def array_of(tensor: Any) -> np.ndarray[Any, Any]:
    import ml_dtypes

    name = str(tensor.dtype).removeprefix("torch.")
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name.replace("torch.", "")) if name != "bool" else np.dtype(bool)
    flat = tensor.contiguous().reshape(-1)
    words = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    return np.frombuffer(bytes(words.view(torch.uint8).tolist()), dtype).reshape(tuple(tensor.shape))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (700, 9), (4100,)])
def test_equals_the_kernels(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    dtype = getattr(torch, name)
    tensor = (torch.randn(shape, dtype=dtype) if dtype.is_complex else (torch.randn(shape) * 40).to(dtype)).clone()
    if (dtype.is_floating_point or dtype.is_complex) and tensor.numel() > 6 and name != "float8_e4m3fn":
        tensor.view(-1)[1:6] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0]).to(dtype)
    words = on_device(torch, tensor)
    assert words.dtype == torch.int64
    found, expected = from_device(words, dtype), kernels.statistics(array_of(tensor))
    for field in ("size", "nan", "pos_inf", "neg_inf", "zero", "neg", "pos", "near_limit", "min_int", "max_int", "digest"):
        assert getattr(found, field) == getattr(expected, field), field
    for field in ("min", "max", "mean", "l2norm"):
        mine, other = getattr(found, field), getattr(expected, field)
        assert (mine is None) == (other is None)
        assert mine is None or mine == pytest.approx(other, rel=1e-12), field


def test_strided_and_huge() -> None:
    tensor = torch.full((4, 6), 1e300, dtype=torch.float64).t()[::2]
    found = from_device(on_device(torch, tensor), tensor.dtype)
    assert found.l2norm == pytest.approx(1e300 * 12**0.5)
    assert found.mean == pytest.approx(1e300)
