# SPDX-License-Identifier: Apache-2.0
"""Statistics by plain tensor operators equal those of the kernels, in as many launches as are
promised.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_arrays import arrays

from opscope.kernels import reference
from opscope.kernels.device import lean

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402 - after the skip

NAMES = sorted(lean.NAMES)
BITS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
EXACT = ("size", "nan", "pos_inf", "neg_inf", "zero", "neg", "pos", "min_int", "max_int")


def tensor_of(array: Any) -> Any:
    """A tensor of the same bytes; torch takes no negative strides and knows NumPy's extra types by
    their bits.
    """
    whole = np.ascontiguousarray(array).reshape(array.shape).copy()
    return torch.from_numpy(whole.view(BITS[whole.itemsize])).view(getattr(torch, array.dtype.name))


def measured(tensor: Any) -> Any:
    return lean.read(torch.cat(lean.launch(torch, tensor)).numpy(), tensor.dtype, tensor.numel())


@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_equals_the_reference(data: Any) -> None:
    array = data.draw(
        arrays().filter(lambda it: it.size and it.dtype.name in NAMES and it.dtype.kind != "c")
    )
    found, expected = measured(tensor_of(array)), reference.statistics(array)
    for field in EXACT:
        assert getattr(found, field) == getattr(expected, field), field
    if array.dtype.kind not in "iub":  # of integers beyond 2**53 the nearest float
        assert (found.min, found.max) == (expected.min, expected.max)
    assert found.near_limit in {expected.near_limit, None}
    assert (found.near_limit is None) == (expected.near_limit != 0)
    assert found.digest is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 65504.0])
def test_the_device_knows_what_is_unsound(
    dtype: Any, bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the counts of many tensors and of their chunks, whatever lies between: not at -inf."""
    monkeypatch.setattr(lean, "CHUNK", 4)
    tensors = [torch.linspace(-2, 2, size).to(dtype) for size in (3, 11, 1)]
    tensors[1][9] = bad
    if dtype.is_complex:  # whose magnitude is read
        tensors[1][9] = complex(0, bad if bad != -math.inf else 1)
    pieces = [piece for each in tensors for piece in lean.launch(torch, each)]
    found = lean.unsound(torch, pieces, sum(each.numel() for each in tensors))
    assert bool(found) == (bad == math.inf or math.isnan(bad))
    assert found.shape == ()


def test_mean_and_norm_carry_the_error_of_float32_sums() -> None:
    array = np.random.default_rng(0).normal(3, 2, 100_000).astype(np.float32)
    found, expected = measured(torch.from_numpy(array)), reference.statistics(array)
    assert found.mean == pytest.approx(expected.mean, rel=1e-5)
    assert found.l2norm == pytest.approx(expected.l2norm, rel=1e-5)


def test_a_norm_that_leaves_float32_is_absent() -> None:
    found = measured(torch.full((100,), 1e30))
    assert found.l2norm is None
    assert found.max == pytest.approx(1e30)


@pytest.mark.parametrize("lines", [3, 7, 100])
def test_chunks_are_joined(lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean, "CHUNK", 64)
    for tensor in (
        torch.randn(lines, 33),
        torch.randn(lines, 33).t(),
        torch.randn(lines, 66)[:, ::2],
        torch.arange(lines * 40),
    ):
        found, expected = measured(tensor), reference.statistics(tensor.numpy())
        assert [getattr(found, field) for field in EXACT] == [
            getattr(expected, field) for field in EXACT
        ]
        assert (found.min, found.max) == (expected.min, expected.max)
        assert found.mean == pytest.approx(expected.mean, rel=1e-5, abs=1e-6)


def test_a_complex_element_is_nan_when_either_part_is() -> None:
    found = measured(torch.tensor([complex("nan+infj"), complex("inf"), 3 + 4j, 0j]))
    assert (found.nan, found.pos_inf, found.neg_inf, found.zero, found.max) == (1, 1, 0, 1, 5.0)


class Launches(TorchDispatchMode):
    """Counts operators that compute: those whose result is no view."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [part.alias_info for part in func._schema.returns]
        view = any(alias is not None and not alias.is_write for alias in given)
        self.count += not view and func is not torch.ops.aten._unsafe_view.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"complex64"}))
def test_few_launches(name: str) -> None:
    tensor = torch.ones(50, 3, dtype=getattr(torch, name)).t()
    comparands = lean.Comparands()
    lean.launch(torch, tensor, comparands=comparands)
    with Launches() as launches:
        lean.launch(torch, tensor, comparands=comparands)
    assert 0 < launches.count <= (8 if tensor.is_floating_point() else 12)
    with Launches() as launches:
        lean.launch(torch, tensor[::2], comparands=comparands)
    assert launches.count <= (9 if tensor.is_floating_point() else 13), "gaps are closed first"


def test_of_many_dimensions() -> None:
    tensor = torch.randn([2] * 9).permute(3, 0, 1, 2, 8, 4, 5, 6, 7)
    assert measured(tensor).min == reference.statistics(tensor.numpy()).min


def test_infinities_and_masks_of_one_sign() -> None:
    """Extremes are those of finite elements, though none of them has the other sign."""
    for sign in (1, -1):
        values = torch.tensor([3.0, 2.0, math.inf, -math.inf, math.nan]) * sign
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            found = measured(values.to(dtype))
            assert (found.min, found.max) == ((2.0, 3.0) if sign == 1 else (-3.0, -2.0))
            assert (found.nan, found.pos_inf, found.neg_inf, found.zero) == (1, 1, 1, 0)
    nothing = measured(torch.tensor([math.nan, -math.inf, math.inf]))
    assert (nothing.min, nothing.max, nothing.pos, nothing.neg) == (None, None, 0, 0)


def test_counts_that_cannot_be_are_refused() -> None:
    words = torch.cat(lean.launch(torch, torch.ones(8))).numpy()
    words[0] = 9  # NaN
    with pytest.raises(ValueError, match="8"):
        lean.read(words, torch.float32, 8)
