# SPDX-License-Identifier: Apache-2.0
"""Integer overflow from values agrees with Python's own integers; what extremes prove is never
wrong.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_soundness import Sample

from opscope.judge.arguments import NO_ARGUMENTS, Arguments
from opscope.judge.integer_values import integer_overflow
from opscope.judge.integers import integer_bits, needs_values

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}
DTYPES = ("int8", "uint8", "int32", "int64")


def reading(values: np.ndarray, slot: str) -> Sample:
    low, high = int(values.min()), int(values.max())
    return Sample(
        slot=slot,
        dtype=str(values.dtype),
        size=values.size,
        min=float(low),
        max=float(high),
        min_int=low,
        max_int=high,
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, np.ndarray, np.ndarray]:
    dtype = draw(st.sampled_from(DTYPES))
    bounds = np.iinfo(dtype)
    count = draw(st.integers(1, 5))
    near = st.one_of(
        st.integers(bounds.min, bounds.max),
        st.integers(max(bounds.min, -20), 20),
        st.integers(bounds.max - 3, bounds.max),
    )
    numbers = st.lists(near, min_size=count, max_size=count)
    return dtype, np.array(draw(numbers), dtype=dtype), np.array(draw(numbers), dtype=dtype)


@given(pairs(), st.sampled_from(sorted(OPERATIONS)))
def test_pairs(drawn: tuple[str, np.ndarray, np.ndarray], name: str) -> None:
    dtype, a, b = drawn
    exact = [OPERATIONS[name](int(x), int(y)) for x, y in zip(a, b, strict=True)]
    bounds = np.iinfo(dtype)
    truth = any(not bounds.min <= value <= bounds.max for value in exact)
    found = integer_overflow(f"aten::{name}.Tensor", NO_ARGUMENTS, {"0": a, "1": b}, dtype=dtype)
    assert found == (0x10 if truth else 0)
    with np.errstate(over="ignore"):
        result = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name](a, b)
    inputs, outputs = [reading(a, "0"), reading(b, "1")], [reading(result, "0")]
    bits = integer_bits(f"aten::{name}.Tensor", NO_ARGUMENTS, inputs, outputs)
    if bits or not needs_values(f"aten::{name}.Tensor", NO_ARGUMENTS, inputs, outputs):
        assert bool(bits) == truth


@given(pairs(), st.integers(-5, 5), st.sampled_from(sorted(OPERATIONS)))
def test_scalars_are_decided_without_values(
    drawn: tuple[str, np.ndarray, np.ndarray], scalar: int, name: str
) -> None:
    dtype, a, _ = drawn
    bounds = np.iinfo(dtype)
    truth = any(not bounds.min <= OPERATIONS[name](int(x), scalar) <= bounds.max for x in a)
    arguments = Arguments((("1", scalar),))
    op = f"aten::{name}.Tensor"
    assert integer_bits(op, arguments, [reading(a, "0")], [reading(a, "0")]) == (
        0x10 if truth else 0
    )
    assert not needs_values(op, arguments, [reading(a, "0")], [reading(a, "0")])
    assert integer_overflow(op, arguments, {"0": a}, dtype=dtype) == (0x10 if truth else 0)


def test_other_families() -> None:
    low = np.array([-128, 3], dtype=np.int8)
    assert integer_overflow("aten::neg.default", NO_ARGUMENTS, {"0": low}, dtype="int8") == 0x8
    assert integer_overflow("aten::neg.default", NO_ARGUMENTS, {"0": low[1:]}, dtype="int8") == 0
    assert (
        integer_overflow(
            "aten::pow.Tensor_Scalar", Arguments((("1", 7),)), {"0": low[1:]}, dtype="int8"
        )
        == 0x10
    )
    assert (
        integer_overflow(
            "aten::pow.Tensor_Scalar", Arguments((("1", 4),)), {"0": low[1:]}, dtype="int8"
        )
        == 0
    )
    big = np.full(3, 2**62, dtype=np.int64)
    assert integer_overflow("aten::sum.default", NO_ARGUMENTS, {"0": big}, dtype="int64") == 0x10
    assert integer_overflow("aten::sum.default", NO_ARGUMENTS, {"0": big[:1]}, dtype="int64") == 0
    square = np.full((2, 2), 2**16, dtype=np.int32)
    assert (
        integer_overflow(
            "aten::mm.default", NO_ARGUMENTS, {"0": square, "1": square}, dtype="int32"
        )
        == 0x10
    )
    assert (
        integer_overflow(
            "aten::mm.default", NO_ARGUMENTS, {"0": square, "1": square // 4}, dtype="int32"
        )
        == 0x10
    )
    assert (
        integer_overflow(
            "aten::mm.default", NO_ARGUMENTS, {"0": square, "1": square // 8}, dtype="int32"
        )
        == 0
    )


def test_large_arrays_are_screened() -> None:
    a = np.arange(200_000, dtype=np.int64)
    assert integer_overflow("aten::mul.Tensor", NO_ARGUMENTS, {"0": a, "1": a}, dtype="int64") == 0
    b = a.copy()
    b[77_777] = 2**62
    assert (
        integer_overflow("aten::mul.Tensor", NO_ARGUMENTS, {"0": a, "1": b}, dtype="int64") == 0x10
    )
    matrix = np.full((300, 300), 2**20, dtype=np.int64)
    assert (
        integer_overflow(
            "aten::mm.default", NO_ARGUMENTS, {"0": matrix, "1": matrix}, dtype="int64"
        )
        == 0
    )
    assert (
        integer_overflow(
            "aten::mm.default", NO_ARGUMENTS, {"0": matrix, "1": matrix * 2**15}, dtype="int64"
        )
        == 0x10
    )


@pytest.mark.parametrize(
    ("value", "bits"), [(-1.0, 0x80), (-0.999, 0), (5.0, 0), (float("nan"), 0)]
)
def test_negative_to_unsigned(value: float, bits: int) -> None:
    values = np.array([value, 1.0], dtype=np.float32)
    assert (
        integer_overflow("aten::_to_copy.default", NO_ARGUMENTS, {"0": values}, dtype="uint8")
        == bits
    )
    assert (
        integer_overflow(
            "aten::copy_.default", NO_ARGUMENTS, {"0": values[:1] * 0, "1": values}, dtype="uint8"
        )
        == bits
    )
    assert (
        integer_overflow("aten::_to_copy.default", NO_ARGUMENTS, {"0": values}, dtype="int8") == 0
    )


def test_what_is_not_integer_arithmetic_has_no_bits() -> None:
    floats = np.array([1e30], dtype=np.float32)
    assert (
        integer_overflow(
            "aten::mul.Tensor", NO_ARGUMENTS, {"0": floats, "1": floats}, dtype="float32"
        )
        == 0
    )
    assert (
        integer_overflow(
            "aten::gather.default", NO_ARGUMENTS, {"0": np.array([2**62])}, dtype="int64"
        )
        == 0
    )
    assert integer_overflow("aten::mul.Tensor", NO_ARGUMENTS, {}, dtype="int64") == 0
