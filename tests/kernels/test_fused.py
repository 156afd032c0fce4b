# SPDX-License-Identifier: Apache-2.0
"""The fused kernel, in Triton's interpreter, answers what the host's kernels do.

Triton is large and has an environment of its own (`make interop`, .venv-triton); there
TRITON_INTERPRET=1 executes the kernel's program for program on the host's memory. Where a GPU is,
the same tests run on it.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_arrays import FLOATING, arrays, content, mean_magnitude
from tests.oldest import IS_OLDEST

from opscope.kernels import reference
from opscope.kernels.device import fused

torch = pytest.importorskip("torch")

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is in the environment of make interop", allow_module_level=True)
ON_GPU = torch.cuda.is_available()
if IS_OLDEST and not ON_GPU:
    pytest.skip("torch 2.4: Triton 3.0's interpreter miscounts", allow_module_level=True)
if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported

# NumPy, which the interpreter computes with, warns of what a device does in silence.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
BITS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
LOOSE = ("mean", "l2norm")


def tensor_of(array: Any) -> Any:
    """A tensor of the same bytes on the device that the kernel runs on."""
    whole = np.ascontiguousarray(array).reshape(array.shape).copy()
    host = torch.from_numpy(whole.view(BITS[whole.itemsize]))
    return host.to("cuda" if ON_GPU else "cpu").view(getattr(torch, array.dtype.name))


def measured(*tensors: Any) -> list[Any]:
    rows = fused.launch_all(torch, tensors)
    return [
        fused.read(row.view(-1).view(torch.int16).cpu().numpy(), each.dtype, each.numel())
        for row, each in zip(rows, tensors, strict=True)
    ]


def assert_equal(found: Any, array: Any) -> None:
    """Everything exactly but the sample, which no device takes; mean within 1e-6 of the mean
    magnitude, l2norm within 1e-6.
    """
    wanted = msgspec.structs.replace(reference.statistics(array), sample=None)
    for field in set(found.__struct_fields__) - set(LOOSE):
        assert repr(getattr(found, field)) == repr(getattr(wanted, field)), field
    if wanted.mean is None:
        assert (found.mean, found.l2norm) == (None, None)
        return
    assert abs(found.mean - wanted.mean) <= 1e-6 * mean_magnitude(array) + 1e-323
    assert found.l2norm == wanted.l2norm or abs(found.l2norm - wanted.l2norm) <= (
        1e-6 * wanted.l2norm + 1e-323
    )


@settings(max_examples=80, deadline=None)
@given(array=arrays(names=fused.NAMES).filter(lambda it: it.size))
def test_equals_the_reference(array: Any) -> None:
    assert_equal(measured(tensor_of(array))[0], array)


@settings(max_examples=40, deadline=None)
@given(array=arrays(names=fused.NAMES).filter(lambda it: it.size))
def test_the_device_knows_what_is_unsound(array: Any) -> None:
    wanted = reference.statistics(array)
    pieces = [piece for _ in range(2) for piece in fused.launch(torch, tensor_of(array))]
    found = fused.unsound(torch, pieces, 2 * array.size)
    assert bool(found) == bool(wanted.nan or wanted.pos_inf)


@pytest.mark.parametrize("name", fused.NAMES)
def test_every_type_with_everything_it_can_hold(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for kind in ("bytes", "special", "plain"):
        array = content(np.dtype(name), 5000, kind, rng)
        assert_equal(measured(tensor_of(array))[0], array)


@pytest.mark.parametrize("name", [each for each in FLOATING if each in fused.NAMES])
def test_subnormal_numbers_have_a_norm(name: str) -> None:
    tiny = np.dtype(name).type(float(ml_dtypes.finfo(np.dtype(name)).smallest_subnormal))
    array = np.full(700, tiny)
    assert_equal(measured(tensor_of(array))[0], array)


VIEWS = {
    "transposed": lambda x: x.t(),
    "sliced": lambda x: x[1::2, ::3],
    "a column": lambda x: x[:, 3],
    "permuted": lambda x: x.view(6, 5, 10, 7).permute(2, 0, 3, 1),
    "expanded": lambda x: x[:, None].expand(-1, 2, -1),
    "five axes": lambda x: x.view(6, 5, 2, 5, 7).permute(4, 0, 3, 1, 2),
    "off by one element": lambda x: x.view(-1)[1:],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["float16", "float32", "int64"])
def test_elements_are_read_in_their_logical_order(name: str, view: str) -> None:
    array = content(np.dtype(name), 2100, "plain", np.random.default_rng(0)).reshape(30, 70)
    tensor = VIEWS[view](tensor_of(array))
    assert_equal(measured(tensor)[0], tensor.cpu().numpy())


@pytest.mark.parametrize("name", ["float32", "bfloat16", "uint8"])
def test_tensors_of_many_sizes_in_one_launch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launches = counted(monkeypatch)
    rng = np.random.default_rng(1)
    sizes = (1, 5000, 3, 40_000, 1024, 1025)
    several = [content(np.dtype(name), size, "a few", rng) for size in sizes]
    for found, array in zip(measured(*map(tensor_of, several)), several, strict=True):
        assert_equal(found, array)
    assert len(launches) == 1


def test_one_launch_a_tensor_and_one_read_an_element(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = counted(monkeypatch)
    array = content(np.dtype("float32"), 60_000, "plain", np.random.default_rng(2))
    assert_equal(measured(tensor_of(array))[0], array)
    assert launches == [(15,)], "programs of four blocks of 4096 bytes"


def test_programs_go_through_more_blocks_of_larger_tensors() -> None:
    assert [fused.span_of(blocks) for blocks in (1, 1 << 12, 1 << 14, 1 << 17, 1 << 24)] == [
        *(4, 4, 16, 128, 128)
    ]


def test_a_mask_of_the_least_number_hides_no_sum() -> None:
    """Elements up to CUT are summed apart."""
    array = np.where(np.arange(6000) % 3 == 0, np.finfo(np.float32).min, 1.5).astype(np.float32)
    (words,) = fused.launch(torch, tensor_of(array))
    core = fused.core_of(words.cpu().numpy(), torch.float32)
    assert core == (4000, pytest.approx(1.5, rel=1e-9), pytest.approx(1.5 * 4000**0.5, rel=1e-6))
    assert_equal(fused.read(words.cpu().numpy(), torch.float32, array.size), array)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 1000))
def test_blocks_of_falling_and_rising_magnitude_are_added(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scale = np.repeat(2.0 ** rng.integers(-140, 120, 8), 1024)
    array = (rng.standard_normal(scale.size) * scale).astype(np.float32)
    assert_equal(measured(tensor_of(array))[0], array)


def test_counts_that_cannot_be_are_refused() -> None:
    (words,) = fused.launch(torch, tensor_of(np.ones(8, np.float32)))
    told = words.cpu().numpy().copy()
    told[0] = 9  # NaN
    with pytest.raises(ValueError, match="8"):
        fused.read(told, torch.float32, 8)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The grids of all launches from now on."""
    launches: list[tuple[int, ...]] = []

    class Counting:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            launches.append(grid)
            return self.kernel[grid]

    original = fused.launcher
    monkeypatch.setattr(fused, "launcher", lambda device: Counting(original(device)))
    return launches
