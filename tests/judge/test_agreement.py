# SPDX-License-Identifier: Apache-2.0
"""Verdicts of a pair of values, and by the dual standard."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np
import pytest
from msgspec.structs import replace
from tests.judge.elements import by_elements

from opscope.errors import UsageError
from opscope.judge.agreement import Agreement, agrees
from opscope.judge.dual import dual_by_statistics, dual_standard
from opscope.judge.tolerance import Tolerance, tolerance_of
from opscope.kernels.pair import pair

RNG = np.random.default_rng(0)
GOLDEN = RNG.standard_normal((40, 50)).astype(np.float32)
LOOSE = Tolerance(absolute=0.0, relative=0.01, ulp=0, reason="a test")


def verdict(
    target: Any, golden: Any = GOLDEN, tolerance: Tolerance = LOOSE, **more: Any
) -> Agreement:
    return agrees(pair(target, golden), tolerance, **more)


def test_values() -> None:
    assert verdict(GOLDEN.copy()).verdict == "equal"
    assert verdict(GOLDEN * np.float32(1.005)).verdict == "agree"
    found = verdict(GOLDEN * np.float32(1.05))
    assert (found.verdict, "is allowed of a test" in found.words) == ("differ", True)
    assert verdict(np.zeros((0, 3)), np.zeros((0, 3))).verdict == "equal"
    nan = GOLDEN.copy()
    nan[3, 4] = np.nan
    assert verdict(nan) == Agreement(
        verdict="differ", error=math.inf, allowed=0.0, words="1 NaN in target, 0 in golden"
    )
    assert verdict(nan, nan.copy()).verdict == "equal"
    swapped = GOLDEN.copy()
    swapped[5, 5] = np.nan
    assert verdict(nan, swapped).words == "2 NaN or Inf at other places"


def test_an_element_beyond_is_found_among_larger_ones() -> None:
    target = GOLDEN.copy()
    place = np.unravel_index(np.argmin(np.abs(GOLDEN)), GOLDEN.shape)
    target[place] += np.float32(0.005)  # small beside the largest, large beside itself
    assert by_elements(target, GOLDEN, LOOSE).verdict == "differ"
    mixed = replace(LOOSE, absolute=0.006)
    assert by_elements(target * np.float32(1.004), GOLDEN, mixed).verdict == "agree"


def test_exact_and_unjudged() -> None:
    one = GOLDEN.copy()
    one[0, 0] = np.nextafter(one[0, 0], np.float32(9))
    found = verdict(one, tolerance=tolerance_of("view", "float32"))
    assert (found.verdict, found.words.startswith("1 of 2000 elements differ")) == ("differ", True)
    assert verdict(one, tolerance=tolerance_of("add", "float32")).verdict == "agree"
    assert verdict(one, tolerance=tolerance_of("dropout", "float32")).verdict == "unknown"
    assert (
        verdict(np.array([1, 2]), np.array([1, 3]), tolerance_of("sum", "int64")).verdict
        == "differ"
    )


REFERENCE = RNG.standard_normal((64, 64))


def noisy(share: float, seed: int) -> Any:
    return (
        REFERENCE * (1 + share * np.random.default_rng(seed).standard_normal(REFERENCE.shape))
    ).astype(np.float32)


def test_the_dual_standard_judges_by_the_goldens_own_error() -> None:
    golden = noisy(1e-3, 1)
    assert dual_standard(noisy(1.2e-3, 2), golden, REFERENCE).verdict == "agree"
    found = dual_standard(noisy(5e-3, 2), golden, REFERENCE)
    assert (found.verdict, "golden's" in found.words) == ("differ", True)
    assert (
        dual_standard(noisy(5e-3, 2), noisy(5e-3, 1), REFERENCE).verdict == "agree"
    )  # neither side is better
    assert dual_standard(REFERENCE, golden, REFERENCE).verdict == "equal"


def test_the_dual_standard_does_not_depend_on_the_scale() -> None:
    small = REFERENCE * 1e-9
    found = dual_standard(
        (small * 1.01).astype(np.float32), (small * 1.0001).astype(np.float32), small
    )
    assert found.verdict == "differ"


def test_the_dual_standard_counts_what_is_not_finite() -> None:
    target, golden = noisy(1e-6, 1), noisy(1e-6, 2)
    target[0, 0] = np.nan
    assert dual_standard(target, golden, REFERENCE).verdict == "differ"
    golden[1, 1] = np.inf
    assert dual_standard(target, golden, REFERENCE).verdict == "agree"
    with pytest.raises(UsageError, match="shapes"):
        dual_standard(target[:3], golden, REFERENCE)


def test_the_dual_standard_from_statistics_needs_a_clear_multiple() -> None:
    assert dual_by_statistics(5e-3, 1e-3, dtype="float32").verdict == "agree"
    found = dual_by_statistics(5e-2, 1e-3, dtype="float32")
    assert (found.verdict, "statistics alone" in found.words) == ("differ", True)
    assert dual_by_statistics(0.0, 1e-3, dtype="float32").verdict == "equal"
    assert (
        dual_by_statistics(2e-4, 0.0, dtype="float32").verdict == "agree"
    )  # beside the least error of the type
