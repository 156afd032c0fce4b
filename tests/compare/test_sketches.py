# SPDX-License-Identifier: Apache-2.0
"""What a sketch of a tensor tells beside another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.compare.pair.sketches import Sketch


def of(values: list[float]) -> Sketch:
    numbers = np.array(values)
    return Sketch(
        len(values),
        float(numbers.sum()),
        float((numbers**2).sum()),
        float(numbers.min()),
        float(numbers.max()),
    )


NUMBERS = st.lists(
    st.floats(0.125, 8.0).flatmap(lambda size: st.sampled_from([size, -size])),
    min_size=4,
    max_size=30,
    unique=True,
)


@given(numbers=NUMBERS, factor=st.floats(0.5, 2.0))
def test_one_factor_is_told_by_norm_least_and_most(numbers: list[float], factor: float) -> None:
    factors = of([factor * each for each in numbers]).factors(of(numbers))
    assert factors == pytest.approx([factor] * 3)


@pytest.mark.parametrize(
    "numbers",
    [[2.0], [1.0, 2.0, 3.0], [1.0] * 8, [0.0, 1.0, 2.0, 3.0]],
    ids=["one", "three", "filled", "zero"],
)
def test_too_little_tells_nothing(numbers: list[float]) -> None:
    assert of([1.5 * each for each in numbers]).factors(of(numbers)) == [1.0] * 3


def test_other_sizes_tell_nothing() -> None:
    assert of([1.0, 2.0, 3.0, 4.0]).factors(of([1.0, 2.0, 3.0, 4.0, 5.0])) == [1.0] * 3
