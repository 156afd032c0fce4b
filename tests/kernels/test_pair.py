# SPDX-License-Identifier: Apache-2.0
"""The compiled pass over two arrays answers what the NumPy reference answers, and each metric has
one definition at every edge.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes  # noqa: F401
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_arrays import DTYPES, LAYOUTS, LENGTHS, content, laid_out

from opscope.errors import UsageError
from opscope.kernels import compiled, pair_reference
from opscope.kernels.pair import Pair, measure, pair

NATIVE = compiled.load()
ISAS = NATIVE.isas() if NATIVE else []
# Sums of many terms are added in another order; everything else is the same number.
SUMS = (
    "sum_abs",
    "squares",
    "sum_rel",
    "dot",
    "squares_target",
    "squares_golden",
    "mean_target",
    "mean_golden",
)
VARIANCES = ("variance_target", "variance_golden")


def nearly(array: Any, rng: np.random.Generator) -> Any:
    """The same numbers with a few changed: by a step of the type, by any amount, to something
    special.
    """
    changed = array.copy().reshape(-1)
    for i in rng.integers(0, max(1, changed.size), rng.integers(0, 6) if changed.size else 0):
        changed[i] = rng.choice(content(array.dtype, 7, "special", rng))
    if changed.size and array.dtype.kind != "b" and rng.random() < 0.5:
        place = int(rng.integers(changed.size))
        view = changed.view(np.uint8)
        view[place * array.dtype.itemsize] ^= 1
    return changed.reshape(array.shape)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    size = draw(st.sampled_from(LENGTHS) | st.integers(0, 3000))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = st.sampled_from(("bytes", "special", "plain", "a few"))
    golden = content(dtype, size, draw(kinds), rng)
    other = draw(st.sampled_from(("same", "near", "any")))
    target = (
        golden
        if other == "same"
        else nearly(golden, rng)
        if other == "near"
        else content(dtype, size, draw(kinds), rng)
    )
    layout, seed = draw(st.sampled_from(LAYOUTS)), int(rng.integers(2**32))
    return (
        laid_out(target, layout, np.random.default_rng(seed)),
        laid_out(golden, layout, np.random.default_rng(seed)),
    )


def differences(found: Any, wanted: Any) -> list[str]:
    one, other = msgspec.structs.asdict(found), msgspec.structs.asdict(wanted)
    wrong = []
    for name, value in one.items():
        if name in VARIANCES:
            side = name.rpartition("_")[2]
            scale = other[f"squares_{side}"] / max(1, other["compared"])
            same = abs(value - other[name]) <= 1e-11 * (other[name] + 1e-4 * scale) + 1e-300
        elif name in SUMS:
            scale = (
                other["squares_golden"] + other["squares_target"]
                if name == "dot"
                else abs(other[name])
            )
            if name.startswith("mean"):
                scale = math.sqrt(
                    other[f"squares_{name.rpartition('_')[2]}"] / max(1, other["compared"])
                )
            same = (
                value == other[name] or abs(value - other[name]) <= 1e-12 * scale + 1e-150
            )  # the larger side is beyond 2**-480
        else:
            same = repr(value) == repr(other[name]) or value == other[name]
        if not same:
            wrong.append(f"{name} {value!r} not {other[name]!r}")
    return wrong


def gathered(target: Any, golden: Any, allowed: tuple[float, float]) -> Any:
    return pair_reference.gather(
        target, golden, allowed, pair_reference.exponent_of(target, golden)
    )


@pytest.mark.parametrize("isa", [isa for isa in ISAS if isa != "sse2"])
@settings(max_examples=150, deadline=None)
@given(both=pairs(), allowed=st.sampled_from([(0.0, 0.0), (0.01, 0.0), (0.0, 0.001), (1e-3, 0.1)]))
def test_equals_the_reference(
    isa: str, both: tuple[Any, Any], allowed: tuple[float, float]
) -> None:
    target, golden = both
    assert (
        differences(
            measure(NATIVE, target, golden, allowed=allowed, isa=isa),
            gathered(target, golden, allowed),
        )
        == []
    )


@pytest.mark.parametrize("isa", [isa for isa in ISAS if isa != "sse2"])
@pytest.mark.parametrize("name", DTYPES)
def test_every_length_at_which_a_loop_changes(isa: str, name: str) -> None:
    rng = np.random.default_rng(7)
    for length in (*LENGTHS[:22], 511, 512, 513, 1025, 70001):
        golden = content(np.dtype(name), length, "a few", rng)
        target = nearly(golden, rng)
        assert (
            differences(
                measure(NATIVE, target, golden, isa=isa), gathered(target, golden, (0.0, 0.0))
            )
            == []
        ), length


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_every_value_of_a_small_type_is_decoded(name: str) -> None:
    every = (
        np.arange(2 ** (8 * np.dtype(name).itemsize))
        .astype(f"u{np.dtype(name).itemsize}")
        .view(name)
    )
    for isa in ISAS:
        assert (
            differences(
                measure(NATIVE, every, every[::-1], isa=isa),
                gathered(every, every[::-1], (0.0, 0.0)),
            )
            == []
        )


@pytest.mark.parametrize("threads", [2, 3, 64])
def test_the_answer_does_not_depend_on_the_threads(threads: int) -> None:
    rng = np.random.default_rng(3)
    for name in ("float32", "bfloat16", "complex64"):
        golden = content(np.dtype(name), 1_300_001, "plain", rng)
        target = nearly(golden, rng)
        assert pair(target, golden, threads=threads) == pair(target, golden)


def test_an_instruction_set_that_is_not_here_is_refused() -> None:
    with pytest.raises(ValueError, match="it runs scalar"):
        measure(NATIVE, np.zeros(3), np.zeros(3), isa="mmx")


def test_without_the_compiled_kernel_the_answer_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target, golden = (
        np.linspace(0, 3, 77, dtype=np.float32),
        np.linspace(0, 3.01, 77, dtype=np.float32),
    )
    wanted = pair(target, golden)
    monkeypatch.setattr(compiled, "load", lambda: None)
    found = pair(target, golden)
    assert found.max_rel == wanted.max_rel
    assert found.ulp_histogram == wanted.ulp_histogram
    assert found.rmse == pytest.approx(wanted.rmse, rel=1e-12)


# Edges: one definition of each metric, whatever the type.
def of(target: Any, golden: Any, dtype: str = "float32", **options: Any) -> Pair:
    return pair(np.asarray(target).astype(dtype), np.asarray(golden).astype(dtype), **options)


METRICS = (
    "max_abs", "mean_abs", "rmse", "max_rel", "mean_rel", "accumulated_relative", "cosine",
    "relative_euclidean", "kl", "std_target", "std_golden", "within_1_1000", "within_5_1000",
    "ulp_max",
)  # fmt: skip


def all_of(found: Pair) -> list[Any]:
    return [getattr(found, name) for name in METRICS]


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int32",
        "int64",
        "bool",
        "float8_e4m3fn",
        "complex64",
    ],
)
def test_edges_empty_and_zero_beside_zero(dtype: str) -> None:
    assert all_of(of(np.zeros((0, 3)), np.zeros((0, 3)), dtype, kl=True)) == [None] * len(METRICS)
    alike = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0]
    assert all_of(of(np.zeros(5), np.zeros(5), dtype, kl=True)) == alike
    assert all_of(of(0, 0, dtype, kl=True)) == alike  # 0-d is one element


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int64"])
def test_edges_a_number_beside_zero(dtype: str) -> None:
    found = of([4, 0], [0, 0], dtype)
    assert (found.max_abs, found.mean_abs, found.rmse) == (4.0, 2.0, math.sqrt(8.0))
    assert (found.max_rel, found.mean_rel, found.accumulated_relative) == (
        math.inf,
        0.0,
        0.0,
    )  # a mean over golden that is not 0
    assert (found.cosine, found.relative_euclidean) == (None, math.inf)
    assert (found.within_1_1000, found.within_5_1000) == (0.5, 0.5)
    assert (found.differing, found.first_mismatch, found.worst_index) == (1, 0, 0)
    other = of([0, 0], [4, 0], dtype)
    assert (other.max_rel, other.cosine, other.relative_euclidean) == (1.0, None, 1.0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_edges_not_finite(dtype: str) -> None:
    nan, inf = math.nan, math.inf
    found = of([nan, inf, -inf, 1, 2, -0.0], [nan, inf, -inf, 1, 2, 0.0], dtype)
    assert (
        found.differing,
        found.nonfinite_mismatch,
        found.compared,
        found.max_abs,
        found.cosine,
    ) == (0, 0, 3, 0.0, 1.0)
    assert (found.nan_target, found.pos_inf_target, found.neg_inf_golden) == (1, 1, 1)
    found = of([nan, 1, inf, 5], [1, nan, -inf, 4], dtype)
    assert (found.differing, found.nonfinite_mismatch, found.compared, found.max_abs) == (
        4,
        3,
        1,
        1.0,
    )
    assert (found.first_mismatch, found.worst_index) == (0, 0)
    assert all_of(of([nan, inf], [nan, 1], dtype, kl=True)) == [None] * len(METRICS)


def test_edges_shapes_and_types() -> None:
    with pytest.raises(UsageError, match=r"shapes \[2\] and \[3\] differ"):
        pair(np.zeros(2), np.zeros(3))
    with pytest.raises(UsageError, match="no numbers"):
        pair(np.array(["a"]), np.array(["a"]))
    mixed = pair(np.array([3.0], np.float32), np.array([3.015625], "bfloat16"))
    assert (mixed.max_abs, mixed.ulp_max, mixed.ulp_histogram) == (0.015625, None, ())
    assert pair(np.array([1], ">f4"), np.array([1], "<f4")).ulp_max == 0
    assert (
        pair(np.array([2**63 - 1]), np.array([2**63 - 2])).max_abs == 1.0
    )  # no double can tell these two apart
    assert pair(np.array([2**64 - 1], np.uint64), np.array([0], np.uint64)).ulp_max == 2**64 - 1
    assert pair(np.array([3], "int4"), np.array([-3], "int4")).max_abs == 6.0


def test_ulps_are_steps_of_the_type() -> None:
    one = np.ones(4, np.float32)
    up = one.copy()
    up[1] = np.nextafter(up[1], np.float32(2))
    up[2] = np.nextafter(np.nextafter(up[2], np.float32(0)), np.float32(0))
    found = pair(up, one)
    assert (found.ulp_max, found.ulp_histogram) == (2, (2, 1, 1))
    tiny = np.array([1e-45], np.float32)
    assert pair(tiny, -tiny).ulp_max == 2  # across zero


def test_extremes_of_float64_do_not_overflow() -> None:
    found = of([3e300, 4e300], [0, 0], "float64")
    assert (found.rmse, found.l2_target) == (
        pytest.approx(math.sqrt(12.5) * 1e300),
        pytest.approx(5e300),
    )
    assert of([1e-300], [2e-300], "float64").relative_euclidean == 0.5
    assert of([-1e308], [1e308], "float64").max_rel == 2.0
    assert of([1e-310 + 2e-310j], [1e-310 + 2e-310j], "complex128").cosine == 1.0


numbers = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=60, deadline=None)
@given(
    both=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=40),
    factor=st.sampled_from([2.0, 0.25, -1.0]),
)
def test_metrics_follow_their_formulas(both: list[tuple[float, float]], factor: float) -> None:
    t, g = (np.array(side, np.float32) for side in zip(*both, strict=True))
    found, scaled, swapped = (
        pair(t, g, kl=True),
        pair(t * np.float32(factor), g * np.float32(factor)),
        pair(g, t),
    )
    wide_t, wide_g = t.astype(np.float64), g.astype(np.float64)
    gap = np.abs(wide_t - wide_g)
    assert found.max_abs == gap.max()
    assert found.mean_abs == pytest.approx(gap.mean())
    assert found.rmse == pytest.approx(math.sqrt((gap**2).mean()))
    assert (found.max_abs, found.ulp_max, found.differing) == (
        swapped.max_abs,
        swapped.ulp_max,
        swapped.differing,
    )  # symmetric
    assert (
        scaled.max_abs == found.max_abs * abs(factor) or np.abs(g).min() < 1e-30
    )  # float32 underflow
    assert found.mean_abs <= found.rmse * (1 + 1e-12) <= found.max_abs * (1 + 1e-9)
    assert found.within_1_1000 <= found.within_5_1000 <= 1.0
    assert sum(found.ulp_histogram) == found.compared
    assert (found.std_target, found.std_golden) == (
        pytest.approx(wide_t.std(), abs=1e-6),
        pytest.approx(wide_g.std(), abs=1e-6),
    )
    assert found.kl >= -1e-9
    if found.cosine is not None and wide_t.any():
        assert found.cosine == pytest.approx(
            wide_t @ wide_g / np.linalg.norm(wide_t) / np.linalg.norm(wide_g), abs=1e-9
        )
    if wide_g.any():
        assert found.relative_euclidean == pytest.approx(
            np.linalg.norm(gap) / np.linalg.norm(wide_g)
        )
    with np.errstate(all="ignore"):
        terms = np.where(wide_g != 0, gap / np.abs(wide_g), 0.0)
    assert found.accumulated_relative == pytest.approx(terms.sum())
    assert found.mean_rel == pytest.approx(terms.mean())


def test_a_variance_loses_nothing_beside_a_large_mean() -> None:
    rng = np.random.default_rng(0)
    golden = 1e8 + rng.standard_normal(300_000)
    assert pair(golden, golden).std_golden == pytest.approx(float(np.std(golden - 1e8)), rel=1e-9)


def test_elements_beyond_a_tolerance_are_counted() -> None:
    found = of([1.0, 2.0, 3.0, 4.5], [1.0, 2.1, 3.0, 4.0], allowed=(0.05, 0.05))
    assert (found.allowed, found.beyond) == ((0.05, 0.05), 1)
