# SPDX-License-Identifier: Apache-2.0
"""Verdicts of calls that were made again, from arrays alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from opscope.judge.replayed import (
    Replayed,
    Sides,
    Terms,
    allows_everywhere,
    gravest,
    judge_output,
)

RANDOM = np.random.default_rng(0)


def sides(true: np.ndarray, *, dtype: str = "float32", off: float = 0.0, **more: object) -> Sides:
    """A target that is the true result rounded to float32, plus off at the first element."""
    target = true.astype(np.float32).astype(np.float64)
    target.flat[0] += off
    own = true.astype(np.float32).astype(np.float64)
    return Sides(dtype=dtype, target=target, own=own, true=true, **more)


def test_rounding_is_allowed_and_one_element_beyond_is_wrong() -> None:
    true = RANDOM.normal(size=(8, 8))
    assert judge_output("0", sides(true)).verdict == "agree"
    found = judge_output("0", sides(true, off=1e-3))
    assert (found.verdict, found.worst, found.elements) == ("wrong", (0, 0), 1)
    assert found.error == pytest.approx(1e-3, rel=1e-3)
    assert found.tolerance is not None
    assert found.tolerance < 1e-4


def test_cancellation_that_the_trusted_kernel_shares_is_ill_conditioned() -> None:
    true = np.full((4,), 1e-6)
    off = Sides(dtype="float32", target=true + 3e-7, own=true - 2e-7, true=true)
    assert judge_output("0", off, Terms(count=1000)).verdict == "ill-conditioned"


def test_the_sum_of_magnitudes_allows_what_a_long_sum_loses() -> None:
    true = np.zeros((4,))
    lost = Sides(
        dtype="float32",
        target=np.full((4,), 1e-5),
        own=true,
        true=true,
        magnitude=np.full((4,), 100.0),
    )
    assert judge_output("0", lost, Terms("aten::sum.default", 10_000, "linear")).verdict == "agree"
    assert judge_output("0", lost, Terms("aten::add.Tensor", kind="linear")).verdict == "agree"
    short = Sides(
        dtype="float32",
        target=np.full((4,), 1e-5),
        own=true,
        true=true,
        magnitude=np.full((4,), 1e-3),
    )
    assert judge_output("0", short, Terms("aten::sum.default", 10, "linear")).verdict == "wrong"


@pytest.mark.parametrize(
    ("here", "there", "verdict"),
    [
        (np.nan, 1.0, "wrong"),
        (1.0, np.nan, "wrong"),
        (np.inf, np.inf, "agree"),
        (np.nan, np.nan, "agree"),
        (-np.inf, np.inf, "wrong"),
    ],
)
def test_what_is_not_finite_is_compared_as_a_mask(here: float, there: float, verdict: str) -> None:
    target, true = np.array([1.0, here]), np.array([1.0, there])
    assert judge_output("0", Sides(dtype="float32", target=target, true=true)).verdict == verdict


def test_an_overflow_that_the_element_type_makes_is_right() -> None:
    true = np.array([1.0, 70000.0])
    assert (
        judge_output("0", Sides(dtype="float16", target=np.array([1.0, np.inf]), true=true)).verdict
        == "agree"
    )
    assert (
        judge_output("0", Sides(dtype="float16", target=np.array([1.0, 60.0]), true=true)).verdict
        == "wrong"
    )


def test_accumulation_in_the_element_type_shows_in_the_root_mean_square() -> None:
    true = RANDOM.normal(size=4096)
    unit = 2.0**-8
    own = true * (1 + RANDOM.uniform(-unit, unit, 4096) / 2)
    narrow = true * (1 + RANDOM.uniform(-3.5 * unit, 3.5 * unit, 4096))
    assert (
        judge_output("0", Sides(dtype="bfloat16", target=own, own=own, true=true)).verdict
        == "agree"
    )
    assert (
        judge_output("0", Sides(dtype="bfloat16", target=narrow, own=own, true=true)).verdict
        == "wrong"
    )


def test_a_cast_rounds_once_to_the_nearest() -> None:
    true = RANDOM.normal(size=4096)
    bits = true.astype(np.float32).view(np.uint32)
    cut = (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    near = ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    terms = Terms("aten::_to_copy.default")
    assert (
        judge_output("0", Sides(dtype="bfloat16", target=near, own=near, true=true), terms).verdict
        == "agree"
    )
    assert (
        judge_output("0", Sides(dtype="bfloat16", target=cut, own=near, true=true), terms).verdict
        == "wrong"
    )


def test_results_that_are_not_unique_are_not_judged() -> None:
    one = Sides(dtype="float32", target=np.ones(3), own=-np.ones(3), true=-np.ones(3))
    assert judge_output("0", one, Terms("aten::linalg_qr.default")).verdict == "unknown"
    assert judge_output("0", one, Terms("aten::bernoulli_.float")).verdict == "wrong", (
        "drawn from one state"
    )


def test_integers_and_exact_operators_must_be_equal() -> None:
    assert (
        judge_output(
            "0", Sides(dtype="int64", target=np.array([1, 2]), own=np.array([1, 3]))
        ).verdict
        == "wrong"
    )
    true = np.array([1.0, 2.0])
    off = Sides(dtype="float32", target=true * (1 + 2.0**-23), own=true, true=true)
    assert judge_output("0", off, Terms(op="aten::relu.default")).verdict == "wrong"
    assert judge_output("0", off).verdict == "agree"


def test_shapes_nothing_to_compare_with_and_the_gravest() -> None:
    one = np.ones(3)
    assert judge_output("0", Sides(dtype="float32", target=one, true=np.ones(4))).verdict == "wrong"
    assert judge_output("0", Sides(dtype="float32", target=one)).verdict == "unknown"
    assert (
        judge_output("0", Sides(dtype="float32", target=np.ones(0), true=np.ones(0))).verdict
        == "agree"
    )
    assert (
        gravest(
            [Replayed(verdict="agree"), Replayed(verdict="flaky"), Replayed(verdict="wrong")]
        ).verdict
        == "wrong"
    )
    assert gravest([]).verdict == "agree"


@given(
    true=arrays.arrays(
        np.float64,
        5,
        elements=st.sampled_from([0.0, 1e-300, 1e-9, -1.0, 3.7, 1e30, np.inf, np.nan]),
    ),
    off=st.sampled_from([0.0, 1e-45, 1e-20, 1e-9, 1e-7, 1e-5, 1e-3, np.inf, np.nan]),
    op=st.sampled_from(
        ["mm", "add", "tanh", "relu", "sum", "sort", "native_layer_norm", "ours::x"]
    ),
    dtype=st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
    count=st.sampled_from([1, 64, 8192]),
)
def test_an_error_that_is_allowed_everywhere_is_wrong_nowhere(
    true: np.ndarray, off: float, op: str, dtype: str, count: int
) -> None:
    """What the check asks before it looks at the elements."""
    target = true.copy()
    target[2] += off
    with np.errstate(all="ignore"):
        error, largest = float(np.abs(true - target).max()), float(np.abs(true).max())
    terms = Terms(op=op, count=count)
    if allows_everywhere(error, largest, dtype=dtype, terms=terms):
        beside = Sides(dtype=dtype, target=target, true=true, alone=2)
        assert judge_output("0", beside, terms).verdict != "wrong"


def test_most_errors_of_a_sum_need_no_look_at_its_elements() -> None:
    terms = Terms(op="mm", count=512)
    assert allows_everywhere(1e-6, 10.0, dtype="float32", terms=terms)
    assert not allows_everywhere(1e-2, 10.0, dtype="float32", terms=terms)
    assert not allows_everywhere(np.nan, np.nan, dtype="float32", terms=terms)
    assert not allows_everywhere(1e-9, 10.0, dtype="float32", terms=Terms(op="sort"))
