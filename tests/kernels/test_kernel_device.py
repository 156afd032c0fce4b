# SPDX-License-Identifier: Apache-2.0
"""The version in torch operators answers what the reference answers, and asks nothing of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from kernel_arrays import DTYPES, arrays, differences

from opscope.kernels import device, reference

torch = pytest.importorskip("torch")
BITS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64, 16: np.complex128}


def tensor_of(array: Any) -> Any:
    """A tensor of the same bytes; torch takes no negative strides and knows NumPy's extra types by their bits."""
    whole = np.ascontiguousarray(array).reshape(array.shape).copy()
    return torch.from_numpy(whole.view(BITS[whole.itemsize])).view(getattr(torch, array.dtype.name))


def measured(tensor: Any, *, digest: bool = True) -> Any:
    row = device.on_device(torch, tensor, digest=digest)
    assert (row.dtype, tuple(row.shape), row.device) == (torch.int64, (device.WORDS,), tensor.device)
    return device.from_device(row, tensor.dtype, digest=digest)


@settings(max_examples=250, deadline=None)
@given(array=arrays())
def test_equals_the_reference(array: Any) -> None:
    """But for a magnitude's last bit: torch takes square roots from a library that does not always round to the nearest."""
    loose = ("min", "max") if array.dtype.kind == "c" else ()
    assert differences(measured(tensor_of(array)), reference.statistics(array), array, loose=loose) == []


def test_views_of_a_storage_that_words_cannot_be_read_from() -> None:
    base = torch.arange(5000, dtype=torch.float32)
    for view in (base[1:], base[3:4001], base.view(50, 100).t(), base[:100].expand(7, 100), base[::3], base[5]):
        array = view.contiguous().numpy()
        assert differences(measured(view), reference.statistics(array), array) == []


def test_lazily_conjugated_and_negated_tensors_are_what_they_stand_for() -> None:
    base = torch.randn(100, dtype=torch.complex64)
    for view in (base.conj(), base.conj().imag):
        array = view.resolve_conj().resolve_neg().numpy()
        assert measured(view).digest == reference.digest(array)


def test_without_digest_nothing_is_hashed() -> None:
    assert measured(torch.ones(10), digest=False).digest is None


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5, 7), (4097,), (2, 3, 1000)])
def test_meta_tensors_have_rows_of_no_values(name: str, shape: tuple[int, ...]) -> None:
    row = device.on_device(torch, torch.empty(shape, dtype=getattr(torch, name), device="meta"))
    assert (row.shape, row.device.type, row.dtype) == ((device.WORDS,), "meta", torch.int64)


def test_a_tensor_that_needs_gradients_is_read_outside_their_graph() -> None:
    row = device.on_device(torch, torch.ones(4, requires_grad=True) * 2)
    assert not row.requires_grad


def test_no_number_is_refused() -> None:
    with pytest.raises(TypeError):
        device.on_device(torch, torch.empty(3, dtype=torch.bits8))
