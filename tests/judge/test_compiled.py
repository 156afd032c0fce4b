# SPDX-License-Identifier: Apache-2.0
"""A compiler's result is held against what correct ones may give, and no more is asked of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.judge.compiled import Sides, deviation

UNIT = 2.0**-24


def sides(compiled: np.ndarray, eager: np.ndarray, **more: object) -> Sides:
    floats = eager.dtype.kind == "f"
    return Sides(
        compiled=compiled, eager=eager, **{"moved": (), "unit": UNIT if floats else 0.0, **more}
    )


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 4.0))
def test_what_rounds_otherwise_is_correct(seed: int, units: float) -> None:
    random = np.random.default_rng(seed)
    true = random.standard_normal(200) * 10.0 ** random.integers(-6, 6, 200)

    def rounded() -> np.ndarray:
        return true * (1 + random.uniform(-units, units, 200) * UNIT)

    assert deviation(sides(rounded(), rounded(), moved=[rounded(), rounded()], true=true)) is None


def test_one_element_that_nobody_else_makes_is_told_with_its_place() -> None:
    eager = np.arange(12.0).reshape(3, 4)
    compiled = eager.copy()
    compiled[2, 1] = 7.0
    found = deviation(sides(compiled, eager, moved=[eager * (1 + 4 * UNIT)]))
    assert found is not None
    assert (found.elements, found.of, found.worst) == (1, 12, (2, 1))
    assert (found.got, found.expected, found.error) == (7.0, 9.0, 2.0)
    assert found.tolerance < 1e-3


def test_an_index_may_jump_where_other_roundings_make_it_jump() -> None:
    eager = np.zeros(100, dtype=np.int64)
    compiled, moved = eager.copy(), eager.copy()
    compiled[:3] = 1
    assert deviation(sides(compiled, eager, moved=[eager])) is not None
    moved[50] = 1
    assert deviation(sides(compiled, eager, moved=[moved])) is None
    compiled[:30] = 1
    assert deviation(sides(compiled, eager, moved=[moved])) is not None


@pytest.mark.parametrize("lost", [np.nan, np.inf])
def test_what_is_finite_for_every_side_has_to_be(lost: float) -> None:
    eager = np.ones(8)
    compiled = np.where(np.arange(8) == 5, lost, eager)
    found = deviation(sides(compiled, eager, moved=[eager]))
    assert found is not None
    assert found.worst == (5,)
    assert deviation(sides(compiled, eager, moved=[compiled])) is None


def test_an_overflow_that_a_wider_accumulator_avoids_is_nobodys_fault() -> None:
    eager = np.array([np.inf, 1.0])
    assert deviation(sides(np.array([65536.0, 1.0]), eager, true=np.array([65536.0, 1.0]))) is None


def test_sides_of_other_shapes_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="shapes"):
        deviation(sides(np.ones(3), np.ones(4)))
