# SPDX-License-Identifier: Apache-2.0
"""The compiled kernels of every instruction set at hand answer what the NumPy reference answers."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from kernel_arrays import DTYPES, FLOATING, LENGTHS, arrays, content, differences, special

from opscope.kernels import Statistics, compiled, digest, native_available, reference, statistics

NATIVE = compiled.load()
ISAS = NATIVE.isas() if NATIVE else []


def measured(array: Any, isa: str, **options: Any) -> Statistics:
    assert NATIVE is not None
    return compiled.statistics(
        NATIVE, array, compiled.NUMBERS[array.dtype.name], isa=isa, **options
    )


def test_the_compiled_kernels_are_here_and_name_what_they_run() -> None:
    assert native_available()
    assert ISAS[0] == "scalar"
    assert NATIVE is not None
    assert NATIVE.isa() in ISAS
    with pytest.raises(ValueError, match="it runs scalar"):
        measured(np.zeros(3), "mmx")


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=250, deadline=None)
@given(array=arrays())
def test_equals_the_reference(isa: str, array: Any) -> None:
    assert differences(measured(array, isa), reference.statistics(array), array) == []


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", DTYPES)
def test_every_length_at_which_a_loop_changes(isa: str, name: str) -> None:
    rng = np.random.default_rng(7)
    for length in LENGTHS:
        for kind in ("plain", "a few"):
            array = content(np.dtype(name), length, kind, rng)
            assert differences(measured(array, isa), reference.statistics(array), array) == [], (
                length,
                kind,
            )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", FLOATING)
def test_one_odd_element_anywhere_in_a_sound_block_is_seen(isa: str, name: str) -> None:
    dtype = np.dtype(name)
    sound = np.linspace(-2, 3, 1100).astype(dtype)
    for value in special(dtype)[::3]:
        for place in (0, 1, 63, 64, 500, 1023, 1024, 1087, 1099):
            array = sound.copy()
            array[place] = value
            assert differences(measured(array, isa), reference.statistics(array), array) == [], (
                value,
                place,
            )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_every_value_of_a_small_type_is_decoded(isa: str, name: str) -> None:
    dtype = np.dtype(name)
    every = np.arange(2 ** (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype)
    for part in [every, *np.array_split(every, 1024 if dtype.itemsize == 2 else 64)]:
        assert differences(measured(part, isa), reference.statistics(part), part) == []


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [2, 3, 64])
def test_the_answer_does_not_depend_on_the_threads(isa: str, threads: int) -> None:
    rng = np.random.default_rng(3)
    for name in ("float32", "bfloat16", "int8", "complex64"):
        array = content(np.dtype(name), 3_000_001, "plain", rng)
        assert measured(array, isa, threads=threads) == measured(array, isa)
    wide = content(np.dtype("float64"), 1 << 20, "plain", rng).reshape(1 << 10, -1).T
    assert measured(wide, isa, threads=threads) == measured(wide, isa)


def test_a_large_array_equals_the_reference() -> None:
    array = np.random.default_rng(5).standard_normal(5_000_001).astype(np.float32)
    array[4_999_999] = np.nan
    found = statistics(array, threads=2)
    assert differences(found, reference.statistics(array), array) == []
    assert (found.nan, found.size) == (1, 5_000_001)


def test_known_answers() -> None:
    found = statistics(np.array([1, -2, 0, -0.0, np.nan, np.inf, -np.inf, 70000], np.float32))
    assert found.digest is not None
    assert (found.size, found.nan, found.pos_inf, found.neg_inf) == (8, 1, 1, 1)
    assert (found.zero, found.neg, found.pos, found.near_limit) == (2, 1, 2, 1)
    assert (found.min, found.max, found.mean) == (-2.0, 70000.0, 69999 / 5)
    assert (found.min_int, found.max_int) == (None, None)
    assert found.l2norm == pytest.approx(math.sqrt(5 + 70000**2), rel=1e-15)


def test_a_sample_is_of_elements_whose_mantissas_are_near_in_any_order() -> None:
    rng = np.random.default_rng(3)
    whole = rng.standard_normal(4000).astype(np.float32)
    found = statistics(whole).sample
    assert found == statistics(rng.permutation(whole).reshape(40, 100).T).sample
    assert found is not None
    assert set(found) <= set(whole.tolist())
    for mantissa, element in zip(reference.MANTISSAS, found, strict=True):
        assert abs(2 * math.frexp(abs(element))[0] - mantissa) < 1e-2
    # what is wholly otherwise beside it takes no place of an element that is as near
    mixed = np.concatenate([whole, 2 + 100 * rng.random(400).astype(np.float32)])
    assert len(set(found) & set(statistics(mixed).sample or ())) >= 5


def test_what_no_sample_is_of() -> None:
    assert statistics(np.ones(7, np.float32)).sample is None
    assert statistics(np.ones(8193, np.float32)).sample is None
    assert statistics(np.ones(100, np.float16)).sample is None
    assert statistics(np.ones(100, np.int64)).sample is None
    none = [0, -0.0, np.nan, np.inf, -np.inf, -1e9, 1e-40, np.finfo(np.float32).min]
    assert statistics(np.array(none, np.float32)).sample is None
    assert statistics(np.array([*none, -3, 3], np.float32)).sample == (-3.0,) * 8
    assert statistics(np.array([0.75] * 8 + [1e300] * 8)).sample == (0.75,) * 8


@pytest.mark.parametrize("name", DTYPES)
def test_an_empty_array_has_counts_and_a_digest_only(name: str) -> None:
    found = statistics(np.zeros((3, 0, 2), name))
    assert found == Statistics(0, 0, 0, 0, 0, 0, 0, 0, digest=reference.digest(np.zeros(0, name)))


def test_no_finite_element_leaves_the_range_absent() -> None:
    found = statistics(np.array([np.nan, np.inf], np.float16))
    assert (found.nan, found.pos_inf, found.min, found.max, found.mean, found.l2norm) == (
        1,
        1,
        None,
        None,
        None,
        None,
    )


@pytest.mark.parametrize("name", ["float32", "float64", "complex64", "int64"])
def test_without_digest_everything_else_is_the_same(name: str) -> None:
    array = content(np.dtype(name), 5000, "plain", np.random.default_rng(1))
    whole = statistics(array)
    assert statistics(array, digest=False) == msgspec.structs.replace(whole, digest=None)
    assert whole.digest == digest(array)


@pytest.mark.parametrize("name", ["float64", "complex128"])
@pytest.mark.parametrize("scale", [1e308, 1e160, 1e-160, 1e-300, 5e-324])
def test_squares_that_leave_double_still_give_mean_and_norm(name: str, scale: float) -> None:
    array = (np.array([1.0, 1.0, -0.5, 1.0] * 999) * scale).astype(name)
    found = statistics(array)
    one = float(np.float64(0.5) * scale)
    mean = (
        (3 * scale / 4 + one / 4 * (-1 if name == "float64" else 1))
        if scale < 1e300
        else scale / 4 * (2.5 if name == "float64" else 3.5)
    )
    norm = scale * math.sqrt(999 * (3 + (one / scale) ** 2)) if scale < 1e300 else math.inf
    assert found.mean == pytest.approx(mean, rel=1e-12, abs=1e-323)
    assert found.l2norm == pytest.approx(norm, rel=1e-12, abs=1e-322)


def test_integers_are_exact_and_the_widest_unsigned_have_no_signed_range() -> None:
    assert statistics(np.array([2**63 - 1, -(2**63)], np.int64)).max_int == 2**63 - 1
    assert statistics(np.array([2**63 - 1], np.uint64)).max_int == 2**63 - 1
    wide = statistics(np.array([2**63, 5], np.uint64))
    assert (wide.min_int, wide.max_int, wide.min, wide.max) == (None, None, 5.0, 2.0**63)
    assert statistics(np.array([True, False, True])).mean == pytest.approx(2 / 3)


def test_any_byte_but_zero_is_true() -> None:
    odd = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    assert (statistics(odd).zero, statistics(odd).pos, statistics(odd).max_int) == (1, 3, 1)


def test_near_the_limit_of_each_type() -> None:
    for name, limit in (
        ("float16", 58953.6),
        ("float8_e4m3fn", 403.2),
        ("float8_e5m2", 51609.6),
        ("bfloat16", 65504),
        ("float32", 65504),
    ):
        dtype = np.dtype(name)
        bits = np.arange(2 ** min(16, 8 * dtype.itemsize), dtype=f"u{min(2, dtype.itemsize)}")
        every = (
            bits.view(dtype) if dtype.itemsize <= 2 else (bits.astype(np.uint32) << 16).view(dtype)
        )
        with np.errstate(all="ignore"):
            value = every.astype(np.float64)
        assert statistics(every).near_limit == int(
            (np.isfinite(value) & (np.abs(value) > limit)).sum()
        )


def test_complex_elements_are_counted_by_their_parts() -> None:
    nan, inf = math.nan, math.inf
    array = np.array(
        [
            complex(nan, inf),
            complex(inf, nan),
            complex(-inf, 1),
            complex(1, -inf),
            complex(3, -4),
            0,
        ],
        np.complex128,
    )
    found = statistics(array)
    assert (found.nan, found.pos_inf, found.neg_inf, found.zero, found.neg, found.pos) == (
        2,
        2,
        0,
        1,
        0,
        1,
    )
    assert (found.max, found.min, found.l2norm) == (5.0, 0.0, 5.0)


def test_a_magnitude_beyond_double_is_the_largest_double() -> None:
    found = statistics(np.array([complex(1.7e308, 1.7e308)]))
    assert (found.pos_inf, found.pos, found.max, found.mean) == (
        0,
        1,
        np.finfo(np.float64).max,
        np.finfo(np.float64).max,
    )


def test_foreign_byte_order_and_strides_between_elements() -> None:
    array = np.arange(-3.0, 700.0)
    assert statistics(array.astype(">f8")) == statistics(array)
    assert reference.statistics(array.astype(">f8")) == reference.statistics(array)
    packed = np.zeros(50, np.dtype([("flag", "u1"), ("value", "<f4")]))
    packed["value"] = array[:50]
    assert statistics(packed["value"]) == statistics(array[:50].astype(np.float32))


def test_types_that_only_the_reference_knows() -> None:
    assert statistics(np.array([1, -7], ml_dtypes.int4)).min_int == -7
    assert statistics(np.array([1.5, 240.0], ml_dtypes.float8_e4m3fnuz)).near_limit == 1
    for array in (
        np.array(["a"]),
        np.array([None]),
        np.zeros(2, np.longdouble),
        np.zeros(2, "M8[s]"),
    ):
        with pytest.raises(TypeError, match="no numbers"):
            statistics(array)


def test_denormals_count_though_the_program_flushes_them() -> None:
    torch = pytest.importorskip("torch")
    tiny = np.full(100, 1e-40, np.float32)
    small = torch.full((3,), 1e-40)
    try:
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor cannot flush denormals")
        found = statistics(tiny)
        assert float((small * 1.0).sum()) == 0.0  # the program's setting is as it was
    finally:
        torch.set_flush_denormal(False)
    assert (found.zero, found.pos) == (0, 100)
    assert found.min == float(np.float32(1e-40))
    assert found.mean == pytest.approx(float(np.float32(1e-40)), rel=1e-12)


def test_other_threads_run_meanwhile() -> None:
    """Several ticks of this thread in one pass of another; a busy machine may need some tries to
    give it a turn.
    """
    wide = np.broadcast_to(np.float32(1), (1 << 28,))
    spans: list[tuple[float, float]] = []

    def measure() -> None:
        begun = time.perf_counter()
        statistics(wide)
        spans.append((begun, time.perf_counter()))

    for _ in range(50):
        thread, ticks = threading.Thread(target=measure), []
        thread.start()
        while thread.is_alive():
            ticks.append(time.perf_counter())
            time.sleep(0.001)
        begun, ended = spans[-1]
        if sum(begun < tick < ended for tick in ticks) > 3:
            return
    pytest.fail("no other thread ran while the kernel did")
