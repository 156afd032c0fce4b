# SPDX-License-Identifier: Apache-2.0
"""Definitions of MindSpore's primitives: what healthy kernels of every type give is near them, and
what is wrong by little is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from opscope.substitute.mindspore import TrueResult, definition, sorted_around

Array = np.ndarray[Any, Any]
X = np.array([-30.0, -5.0, -1.5, -1e-6, 0.0, 1e-6, 0.5, 4.9976, 20.0])
NAN, INF = np.nan, np.inf


def defined(op: str, *operands: Any, dtype: str = "float32", **attributes: Any) -> TrueResult:
    types = [dtype for operand in operands if isinstance(operand, np.ndarray)]
    found = definition(op, operands, attributes, types=types, result=dtype)
    assert found is not None
    return found


def word(found: TrueResult, target: Array, dtype: str = "float32") -> str:
    return found.judge(np.asarray(target, np.float64), dtype=dtype).verdict


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("Tanh", np.tanh),
        ("Exp", np.exp),
        ("Softplus", lambda x: np.logaddexp(x, 0)),
        ("Expm1", np.expm1),
        ("Sin", np.sin),
        ("Abs", np.abs),
        ("SiLU", lambda x: x / (1 + np.exp(-x))),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_healthy_kernels_agree(op: str, function: Any, dtype: str) -> None:
    given_values = X.astype(dtype).astype(np.float64)
    given_values = given_values if dtype != "float16" else np.clip(given_values, -10, 10)
    found = defined(op, given_values, dtype=dtype)
    assert word(found, function(given_values).astype(dtype), dtype) == "agree"


def test_polynomials_of_a_back_end_agree_and_what_ships_wrong_does_not() -> None:
    """Figures of MindSpore 2.10 on the CPU: Exp 41 roundings off, Tanh 1,680, Softplus lost."""
    one = np.array([-0.34601, -4.9976])
    assert word(defined("Exp", one), np.exp(one) * (1 + 41 * 2.0**-24)) == "agree"
    assert word(defined("Tanh", one), np.array([np.tanh(one[0]), -1.0000089])) == "wrong"
    low = np.array([-10.397, -16.648, 3.0])
    assert word(defined("Softplus", low), np.log1p(np.exp(low))) == "agree"
    lost = np.array([np.log1p(np.exp(low[0])), 0.0, np.log1p(np.exp(3.0))])
    assert word(defined("Softplus", low), lost) == "wrong"


def test_nan_is_passed_on_by_both_operands() -> None:
    one, other = np.array([1.0, NAN, 2.0]), np.array([0.0, 0.0, NAN])
    found = defined("Maximum", one, other)
    assert word(found, np.array([1.0, NAN, NAN])) == "agree"
    assert word(found, np.array([1.0, NAN, 2.0])) == "wrong"
    assert word(found, np.array([1.0, 0.0, NAN])) == "wrong"


def test_integers_and_truth_values() -> None:
    one, other = np.array([3, -4]), np.array([1, 9])
    assert defined("Maximum", one, other, dtype="int32").true.tolist() == [3, 9]
    assert definition("RealDiv", [one, other], {}, types=["int32"] * 2, result="int32") is None
    truth = definition("Less", [one, other], {}, types=["int32"] * 2, result="bool")
    assert truth is not None
    assert truth.true.tolist() == [False, True]


def test_without_a_definition() -> None:
    assert definition("MatMul", [X], {}, types=["float32"], result="float32") is None
    assert definition("Exp", ["a name"], {}, types=[], result="float32") is None
    assert definition("Sort", [X], {"axis": 4}, types=["float32"], result="float32") is None


@pytest.mark.parametrize("descending", [False, True])
@given(
    values=arrays.arrays(
        np.float64, (3, 7), elements=st.sampled_from([NAN, -INF, -2.0, -0.5, 0.0, 1.0, 3.0, INF])
    ),
    data=st.data(),
)
def test_sorted_values_may_have_nan_anywhere(
    descending: bool, values: Array, data: st.DataObject
) -> None:
    """In each row the others are in order, wherever NaN stands; and are not once two are swapped."""
    found = defined("Sort", values, axis=1, descending=descending)
    rows = []
    for row in values:
        order = sorted(row[~np.isnan(row)], reverse=descending)
        places = data.draw(st.permutations(range(7)))[: len(order)]
        target = np.full(7, NAN)
        target[sorted(places)] = order
        rows.append(target)
    target = np.array(rows)
    assert word(found, target) == "agree"
    first = target[0][~np.isnan(target[0])]
    if len(first) > 1 and first[0] != first[-1]:
        swapped = target.copy()
        ends = np.flatnonzero(~np.isnan(target[0]))[[0, -1]]
        swapped[0, ends] = target[0, ends[::-1]]
        assert word(found, swapped) == "wrong"


def test_a_nan_that_is_gone_is_told() -> None:
    values = np.array([[NAN, 1.0]])
    target = np.array([[1.0, 1.0]])
    assert np.array_equal(
        sorted_around(np.array([[1.0, NAN]]), target, 1), [[1.0, NAN]], equal_nan=True
    )
    assert word(defined("Sort", values, axis=1, descending=False), target) == "wrong"
