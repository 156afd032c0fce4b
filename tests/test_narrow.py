# SPDX-License-Identifier: Apache-2.0
"""Floats that NumPy lacks, against ml_dtypes and, where that rounds twice, exact arithmetic."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope import narrow
from opscope.arrays import Array
from opscope.narrow import FORMATS, as_type, is_narrow, limits, name_of, narrowed, widened

NAMES = sorted(FORMATS)
FLOATS = {32: np.float32, 64: np.float64}


def theirs(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name))


def codes_of(name: str) -> Array:
    unsigned = FORMATS[name].unsigned
    return np.arange(1 << 8 * unsigned.itemsize, dtype=np.uint32).astype(unsigned)


def same_bits(one: Array, other: Array) -> bool:
    return one.dtype.itemsize == other.dtype.itemsize and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_every_code_is_the_number_that_ml_dtypes_says(name: str) -> None:
    codes = codes_of(name)
    with np.errstate(invalid="ignore"):
        expected = codes.view(theirs(name)).astype(np.float32)
    for array in (codes.view(narrow.dtype(name)), codes.view(theirs(name))):
        assert widened(array).dtype == np.float32
        assert same_bits(widened(array), expected)
        grid = array.reshape(2, -1).T[::3]
        assert same_bits(widened(grid), expected.reshape(2, -1).T[::3])
        assert same_bits(widened(array[5:6].reshape(())), expected[5:6].reshape(()))


@pytest.mark.parametrize("name", NAMES)
def test_limits_are_those_of_ml_dtypes(name: str) -> None:
    known = ml_dtypes.finfo(theirs(name))
    for dtype in (narrow.dtype(name), theirs(name)):
        told = limits(dtype)
        assert told.largest == float(known.max)
        assert told.smallest_normal == float(known.smallest_normal) == float(known.tiny)
        assert told.smallest == float(known.smallest_subnormal)
        assert told.eps == float(known.eps)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_limits_of_numpy_are_those_of_numpy(dtype: Any) -> None:
    known, told = np.finfo(dtype), limits(np.dtype(dtype))
    assert (told.largest, told.eps) == (known.max, known.eps)
    assert (told.smallest_normal, told.smallest) == (known.tiny, known.smallest_subnormal)


def midpoints(name: str) -> Array:
    """All numbers of a format, what lies halfway between two of them and beyond the last, and the
    neighbours of each among float32 and float64.
    """
    finite = np.unique(widened(codes_of(name).view(narrow.dtype(name))).astype(np.float64))
    finite = finite[np.isfinite(finite)]
    last = finite[-1] + (finite[-1] - finite[-2])
    ends = np.array([finite[-1] / 2 + last / 2, last, finite[0] / 2, 2 * finite[-1], 0.0, np.inf])
    points = np.unique(np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, ends, -ends]))
    return np.concatenate([points, [-0.0, np.nan, -np.nan]])


def rounded_up(values: Array, name: str) -> Array:
    """Where ml_dtypes 0.5 rounds a number of float8_e8m0fnu away from the nearest: between 2**-127
    and one and a half of it, which in float32 are subnormal.
    """
    least = 2.0**-127
    return (name == "float8_e8m0fnu") & (values > least) & (values < 1.5 * least)


def neighbours(points: Array) -> Array:
    return np.concatenate(
        [
            points,
            np.nextafter(points, points.dtype.type(np.inf)),
            np.nextafter(points, -points.dtype.type(np.inf)),
        ]
    )


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_rounded_as_ml_dtypes_rounds(name: str) -> None:
    with np.errstate(all="ignore"):
        values = neighbours(midpoints(name).astype(np.float32))
        values = values[~rounded_up(values, name)]
        expected = values.astype(theirs(name))
    found = narrowed(values, name)
    assert found.dtype == narrow.dtype(name)
    assert same_bits(found, expected)


def nearest(value: float, name: str) -> int:
    """The code of a number by exact arithmetic."""
    form = FORMATS[name]
    sign = 0 if not form.signed or not np.signbit(value) else form.sign
    if np.isnan(value):
        return form.nan if form.rule in ("fnuz", "scale") else sign + form.nan
    if not form.signed and (value <= 0 or np.isinf(value)):
        return form.nan
    if not np.isinf(value):
        size = abs(Fraction(value))
        low, high = 0, form.last
        numbers = [*map(Fraction, form.numbers(np.arange(form.last + 1)).tolist())]
        while low < high:  # the last whose number is not beyond
            middle = (low + high + 1) // 2
            low, high = (middle, high) if numbers[middle] <= size else (low, middle - 1)
        step = numbers[-1] - numbers[-2] if form.signed else numbers[-1]
        up = numbers[low + 1] if low < form.last else numbers[-1] + step
        below, above = size - numbers[low], up - size
        even = low % 2 == 0 if form.signed else False  # a power of two and a half goes up
        code = low if below < above or (below == above and even) else low + 1
        code = 0 if size < numbers[0] else code
    if np.isinf(value) or code > form.last:
        return form.nan if form.rule == "fnuz" else sign + form.overflowed
    return 0 if form.rule == "fnuz" and code == 0 else sign + code


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bfloat16"])
def test_float64_is_rounded_once(name: str) -> None:
    """ml_dtypes rounds float64 by way of float32 to some formats: exact arithmetic is the judge."""
    with np.errstate(all="ignore"):
        values = neighbours(midpoints(name))
    found = narrowed(values, name).view(FORMATS[name].unsigned).tolist()
    assert found == [nearest(value, name) for value in values.tolist()]


def test_bfloat16_of_float64_is_rounded_once() -> None:
    above = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 2.0**-8 - 2.0**-40])
    assert widened(narrowed(above, "bfloat16")).tolist() == [1 + 2.0**-7, 1.0, 1.0]
    assert above.astype(ml_dtypes.bfloat16).astype(float).tolist() == [1.0, 1.0, 1.0]  # twice
    with np.errstate(all="ignore"):
        halves = midpoints("bfloat16")
        singles = halves.astype(np.float32)
        exact = halves[singles == halves]
        assert same_bits(
            narrowed(exact, "bfloat16"), exact.astype(np.float32).astype(ml_dtypes.bfloat16)
        )


@pytest.mark.parametrize("name", NAMES)
@given(value=st.floats(width=32, allow_subnormal=True))
def test_any_float32(name: str, value: float) -> None:
    single = np.array([value], np.float32)
    single = single[~rounded_up(single, name)]
    with np.errstate(all="ignore"):
        assert same_bits(narrowed(single, name), single.astype(theirs(name)))
        wide = single.astype(np.float64)
        assert same_bits(narrowed(wide, name), single.astype(theirs(name)))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bfloat16"])
@given(value=st.floats(width=64))
def test_any_float64(name: str, value: float) -> None:
    assert int(narrowed(np.array(value), name).view(FORMATS[name].unsigned)) == nearest(value, name)


@pytest.mark.parametrize("name", NAMES)
def test_float16_and_narrow_ones_are_rounded_too(name: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    halves = halves[~np.isnan(halves)]
    with np.errstate(all="ignore"):
        expected = halves.astype(np.float32).astype(theirs(name))
    assert same_bits(narrowed(halves, name), expected)
    brain = codes_of("bfloat16").view(narrow.dtype("bfloat16"))
    with np.errstate(all="ignore"):
        assert same_bits(narrowed(brain, name), narrowed(widened(brain), name))


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    assert name_of(narrow.dtype(name)) == name_of(theirs(name)) == name
    assert is_narrow(narrow.dtype(name))
    assert is_narrow(theirs(name))
    assert pickle.loads(pickle.dumps(narrow.dtype(name))) == narrow.dtype(name)


def test_a_single_number() -> None:
    every = np.array(0xFFFFFFFF, np.uint32).view(np.float32)
    for name in NAMES:
        assert narrowed(every, name).shape == ()
        assert np.isnan(widened(narrowed(every, name)))
        assert widened(narrowed(np.array(1.0), name)).tolist() == 1.0


def test_other_types_are_left_alone() -> None:
    pair = np.dtype([("bfloat16", "u2"), ("more", "u2")])
    assert name_of(pair) == pair.name
    assert name_of(np.dtype("f4")) == "float32"
    assert name_of(np.dtype([])) == "void"
    assert not is_narrow(np.dtype("f2"))
    for array in (np.ones(2, np.float16), np.ones(2, ml_dtypes.int4), np.zeros(2, pair)):
        assert widened(array) is array
    with pytest.raises(ValueError, match="not inexact"):
        limits(np.dtype("i4"))


def test_as_type() -> None:
    ours = narrowed(np.array([1.5, -2.0]), "bfloat16")
    foreign = ours.view(np.uint16).view(ml_dtypes.bfloat16)
    payload = np.array([0x7F81], np.uint16).view(ml_dtypes.bfloat16)
    assert as_type(ours, np.dtype("f8")).tolist() == [1.5, -2.0]
    assert as_type(ours, np.dtype("i4")).tolist() == [1, -2]
    assert as_type(foreign, theirs("bfloat16")).dtype == narrow.dtype("bfloat16")
    assert as_type(payload, narrow.dtype("bfloat16")).view(np.uint16).tolist() == [0x7F81]
    assert same_bits(as_type(np.array([1.5, -2.0]), theirs("bfloat16")), ours)
    assert widened(as_type(ours, narrow.dtype("float8_e5m2"))).tolist() == [1.5, -2.0]
    assert as_type(ours, ours.dtype).view(np.uint16).base is not None


NUMERIC: dict[str, Callable[[Array], Any]] = {
    **{
        f"astype {kind}": lambda a, kind=kind: a.astype(kind)
        for kind in ("f2", "f4", "f8", "i4", "u1", "u2", "c8", "?")
    },
    **{
        kind.__name__: kind  # type: ignore[misc]
        for kind in (
            np.isnan,
            np.isfinite,
            np.abs,
            np.negative,
            np.sqrt,
            np.sum,
            np.max,
            np.mean,
            np.any,
            np.argmax,
            np.cumsum,
        )
    },
    **{
        f"{kind.__name__} of two": lambda a, kind=kind: kind(a, np.float32(1))
        for kind in (np.add, np.subtract, np.multiply, np.maximum, np.less, np.equal, np.isclose)
    },
    "add": lambda a: a + a,
    "add in float32": lambda a: np.add(a, a, dtype=np.float32, casting="unsafe"),
    "product": lambda a: a @ a,
    "equal to a number": lambda a: a == 1.0,
    "a list": lambda a: float(a[0]),
    "into floats": lambda a: np.copyto(np.zeros(2, np.float32), a, casting="unsafe"),
    "out of numbers": lambda a: np.array([1.5], a.dtype),
    "joined with floats": lambda a: np.concatenate([a, np.ones(1, np.float32)]),
    "chosen beside floats": lambda a: np.where([True, False], a, np.ones(2, np.float32)),
}


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("operation", NUMERIC)
def test_numpy_refuses_to_calculate_with_bits(operation: str, name: str) -> None:
    ones = narrowed(np.ones(2), name)
    with pytest.raises((TypeError, ValueError)):
        NUMERIC[operation](ones)


@pytest.mark.parametrize("name", NAMES)
def test_bits_are_moved(name: str) -> None:
    form, dtype = FORMATS[name], narrow.dtype(name)
    bits = codes_of(name)[:24]
    array = bits.view(dtype).reshape(4, 6)
    assert dtype.itemsize == form.unsigned.itemsize
    for moved, expected in (
        (array.T, bits.reshape(4, 6).T),
        (array[1::2, ::-1], bits.reshape(4, 6)[1::2, ::-1]),
        (np.concatenate([array, array]), np.concatenate([bits, bits]).reshape(8, 6)),
        (np.stack([array, array]), np.stack([bits, bits]).reshape(2, 4, 6)),
        (np.ascontiguousarray(array.T), bits.reshape(4, 6).T),
        (np.broadcast_to(array[0], (3, 6)), np.broadcast_to(bits[:6], (3, 6))),
        (np.frombuffer(array.tobytes(), dtype).reshape(4, 6), bits.reshape(4, 6)),
        (array.take([3, 0], axis=0), bits.reshape(4, 6)[[3, 0]]),
        (np.zeros((2, 2), dtype), np.zeros((2, 2))),
    ):
        assert moved.dtype == dtype
        assert moved.view(form.unsigned).tolist() == expected.tolist()
    assert memoryview(array).cast("B").tobytes() == bits.tobytes()
