# SPDX-License-Identifier: Apache-2.0
"""One explanation of a whole difference is said, with words that fit; what explains only a part, or
nothing, is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.judge.mismatch import explain
from opscope.judge.mismatch_values import factor_words
from opscope.judge.reasons import PATTERNS, reason_in

RNG = np.random.default_rng(0)
GOLDEN = RNG.standard_normal((4, 8, 16, 32)).astype(np.float32)
BIAS = RNG.standard_normal(32).astype(np.float32)
OTHER = RNG.standard_normal(GOLDEN.shape).astype(np.float32)


def changed(where: Any, value: Any) -> Any:
    found = GOLDEN.copy()
    found[where] = value(found[where]) if callable(value) else value
    return found


def flat(where: Any, value: float) -> Any:
    found = GOLDEN.copy().reshape(-1)
    found[where] = value
    return found.reshape(GOLDEN.shape)


ABOVE = (..., np.triu(np.ones((16, 32), np.bool_), 1))
CASES: list[tuple[str, Any, str]] = [
    ("sign", -GOLDEN, "target is golden with the sign turned"),
    ("scale", GOLDEN / np.sqrt(np.float32(96)), "target is golden times 1/sqrt(96)"),
    ("scale", GOLDEN * 65536, "target is golden times 65536"),
    ("offset", GOLDEN + 3, "target is golden plus 3"),
    ("constant", np.zeros_like(GOLDEN), "target is 0 everywhere"),
    ("constant", np.full_like(GOLDEN, np.nan), "target is nan everywhere"),
    (
        "rounded",
        GOLDEN.astype("bfloat16").astype(np.float32),
        "target is golden rounded to bfloat16",
    ),
    (
        "rounded",
        GOLDEN.astype(np.float16).astype(np.float32),
        "target is golden rounded to float16",
    ),
    ("clipped", np.clip(GOLDEN, -2, 2), "target is golden held between -2 and 2"),
    ("clipped", np.minimum(GOLDEN, 2), "target is golden held at most 2"),
    ("vector", GOLDEN - BIAS, "target is golden plus a vector along dimension 3"),
    ("scales", GOLDEN * BIAS, "target is golden times a vector along dimension 3"),
    ("transposed", GOLDEN.transpose(0, 2, 1, 3).copy(), "dimensions in the order [0, 2, 1, 3]"),
    ("layout", GOLDEN.transpose(0, 2, 3, 1).reshape(GOLDEN.shape), "as when a layout is misread"),
    ("reshaped", GOLDEN.reshape(32, 16, 32), "another shape, [32, 16, 32]"),
    ("permuted", np.roll(GOLDEN, 3, 2), "slices along dimension 2 rolled by 3"),
    ("permuted", np.roll(GOLDEN, 16, 3), "halves exchanged"),
    ("permuted", GOLDEN[:, ::-1], "slices along dimension 1 in reverse order"),
    (
        "permuted",
        GOLDEN[:, [0, 1, 3, 2, 4, 5, 6, 7]],
        "slices along dimension 1: 2 and 3 exchanged",
    ),
    (
        "permuted",
        GOLDEN.reshape(4, 8, 16, 2, 16).swapaxes(-1, -2).reshape(GOLDEN.shape),
        "interleaved by halves",
    ),
    (
        "shifted",
        np.concatenate([OTHER[..., :1], GOLDEN[..., :-1]], axis=-1),
        "shifted by 1 along dimension 3",
    ),
    (
        "box",
        changed((slice(None), 3), 0),
        "only index 3 of 8 of the slices (dimension 1) differ: 0 in target",
    ),
    (
        "box",
        changed((..., slice(0, None, 4), slice(None)), lambda x: 2 * x),
        "every 4th from 0, of 16 of the rows (dimension 2) differ, and there",
    ),
    (
        "box",
        changed((..., slice(8, 16)), lambda x: -x),
        (
            "8 to 15 of 32 of the columns (dimension 3) differ, and there target is golden with "
            "the sign"
        ),
    ),
    (
        "tail",
        changed((..., slice(27, None)), OTHER[..., 27:]),
        "only the last 5 of 32 of the columns (dimension 3) differ",
    ),
    (
        "tail",
        flat(slice(-300, None), np.nan),
        "the last 300 of 16384 elements in C order differ: NaN in target",
    ),
    (
        "run",
        flat(slice(1000, 1700), 0),
        "elements 1000 to 1699 of 16384 in C order differ: 0 in target",
    ),
    (
        "triangle",
        changed(ABOVE, lambda x: x + 5),
        "diagonal 1 of the last two dimensions differ, and there target is golden plus 5",
    ),
    ("elements", changed((1, 2, 3, 4), 9), "only element [1, 2, 3, 4] of 16384 differs"),
    (
        "nan",
        np.where(RNG.random(GOLDEN.shape) < 0.01, np.nan, GOLDEN),
        "elements are NaN in target alone",
    ),
    (
        "zeros",
        np.where(RNG.random(GOLDEN.shape) < 0.1, 0, GOLDEN),
        "elements are 0 in target, all others agree",
    ),
]


@pytest.mark.parametrize(
    ("kind", "target", "words"),
    CASES,
    ids=[f"{kind}-{number}" for number, (kind, _, _) in enumerate(CASES)],
)
def test_one_explanation(kind: str, target: Any, words: str) -> None:
    found = explain(target, GOLDEN)
    assert found is not None
    assert (found.kind, words in found.words) == (kind, True), found.words
    assert reason_in(found.words) in PATTERNS


@pytest.mark.parametrize(
    "target",
    [
        GOLDEN.copy(),
        OTHER,
        GOLDEN + np.float32(1e-3) * OTHER,
        -GOLDEN + np.float32(0.01) * OTHER,  # a sign explains it but for an error of its own
        np.where(RNG.random(GOLDEN.shape) < 0.3, OTHER, GOLDEN),
        GOLDEN * (1 + np.float32(1e-7)),
        GOLDEN[..., :16],
    ],
)
def test_nothing_is_said_of_what_nothing_explains(target: Any) -> None:
    assert explain(target, GOLDEN) is None


def test_a_tensor_of_the_call_that_was_left_out_is_named() -> None:
    found = explain(GOLDEN - BIAS, GOLDEN, others={"input 2 (fc.bias)": BIAS, "x": np.ones((7,))})
    assert found is not None
    assert found.words == "target is golden without input 2 (fc.bias)"


def test_rounding_of_a_coarse_type_is_no_difference_to_explain() -> None:
    golden = GOLDEN.astype("bfloat16")
    near = (golden.astype(np.float32) * np.float32(1 + 2**-8)).astype("bfloat16")
    assert explain(near, golden) is None
    found = explain((golden.astype(np.float32) * 2).astype("bfloat16"), golden)
    assert found is not None
    assert found.words == "target is golden times 2"


def test_small_arrays_are_not_fitted() -> None:
    assert explain(np.array([3.0]), np.array([1.5])) is None
    assert explain(np.array([3.0, 8.0]), np.array([1.5, 2.0])) is None
    assert explain(np.zeros((0,)), np.zeros((0,))) is None


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(9, 12), (64,), (2, 3, 8), (3, 4, 5, 6)]),
    axis=st.integers(0, 3),
    noise=st.booleans(),
)
def test_what_is_said_is_true(seed: int, shape: tuple[int, ...], axis: int, noise: bool) -> None:
    rng = np.random.default_rng(seed)
    golden = rng.standard_normal(shape).astype(np.float32)
    axis %= len(shape)
    order = rng.permutation(shape[axis])
    target = np.take(golden, order, axis=axis)
    if noise:
        target = target + rng.standard_normal(shape).astype(np.float32) * np.float32(0.05)
        found = explain(target, golden)
        assert found is None or (order == np.arange(shape[axis])).all()
    elif (order != np.arange(shape[axis])).any():
        assert (found := explain(target, golden)) is not None
        assert found.kind in ("permuted", "transposed", "layout", "box")


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (2.0, "2"),
        (-2.0, "-2"),
        (0.125, "1/8"),
        (2**0.5, "sqrt(2)"),
        (1 / 8**0.5, "1/sqrt(8)"),
        (0.37171, "0.37171"),
        (1 + 2j, "1+2j"),
    ],
)
def test_factors_in_words(factor: Any, words: str) -> None:
    assert factor_words(factor) == words


def test_everything_that_can_be_asked_ends(capsys: Callable[..., Any]) -> None:
    for target in (
        np.full(8, np.inf),
        np.array([1, 2, 3, 4] * 2, np.int64),
        np.array([True, False] * 4),
        np.arange(8) * 1j,
    ):
        assert explain(target, target.copy()) is None
        explain(target, target[::-1].copy())
