# SPDX-License-Identifier: Apache-2.0
"""How the arguments of two calls differ, however each is spelt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opscope.questions.arguments import difference

X = {"tensor": "0"}


def told(op: str, *texts: str, ranks: tuple[int, int] | None = None) -> str:
    return difference(op, *texts, ranks=ranks)


def given(*args: Any, **kwargs: Any) -> str:
    return json.dumps({"args": [X, *args], "kwargs": kwargs})


@pytest.mark.parametrize(
    ("op", "mine", "theirs", "ranks"),
    [
        ("aten::mean.dim", given([-1], True), given([2]), (3, 3)),
        ("aten::mean.dim", given([-1]), given([3]), (2, 4)),  # the last of either
        ("aten::softmax.int", given(1), given(-1), None),  # of which rank, nobody knows
        ("aten::gelu", given(), given(approximate="none"), None),
        ("aten::add.Tensor", given(X), given(X, alpha=1), None),
        ("aten::add.Tensor", given(X, alpha=1.0), given(X), None),
        ("aten::native_layer_norm", given([4], X, X, 1e-5), given([4], X, X, eps=1e-5), None),
        ("aten::mul.Tensor", given(2.0), given({"tensor": "1"}), None),
        ("aten::add.Scalar", given(2), given(2.0), None),
        ("aten::max_pool2d", given([2, 2], padding=[0, 0]), given([2, 2]), None),
    ],
)
def test_one_argument_spelt_in_two_ways_is_one(
    op: str, mine: str, theirs: str, ranks: tuple[int, int] | None
) -> None:
    assert told(op, mine, theirs, ranks=ranks) == ""
    assert told(op, theirs, mine, ranks=ranks and ranks[::-1]) == ""


@pytest.mark.parametrize(
    ("op", "mine", "theirs", "words"),
    [
        ("aten::mean.dim", given([-1]), given([0]), "argument 1.0 (dim) is -1, golden has 0"),
        (
            "aten::gelu",
            given(approximate="tanh"),
            given(),
            "argument approximate is tanh, golden has its default",
        ),
        (
            "aten::native_layer_norm",
            given([4], X, X, 1e-5),
            given([4], X, X, eps=1e-6),
            "argument 4 (eps) is 1e-05, golden has 1e-06",
        ),
        ("aten::add.Scalar", given(True), given(2.0), "argument 1 (other) is True, golden has 2.0"),
        ("mine::op", given(3), given(), "argument 1 is 3, golden has its default"),
    ],
)
def test_what_is_another_argument_is_told_by_its_place_and_name(
    op: str, mine: str, theirs: str, words: str
) -> None:
    assert told(op, mine, theirs, ranks=(3, 3)) == words


@pytest.mark.parametrize("text", [None, "", "{", "[" * 100_000])
def test_what_nobody_can_read_differs_in_nothing(text: str | None) -> None:
    assert difference("aten::add.Scalar", text, given(2)) == ""
