# SPDX-License-Identifier: Apache-2.0
"""Gradients of functions, by autograd of their forward call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opscope.substitute.callables import function_named
from opscope.substitute.layout import ARGUMENTS, GRADIENT, GRADS, WANTED


def gradients(
    op: str, *args: Any, wanted: list[str], by_argument: bool, **kwargs: Any
) -> list[Any]:
    given = {GRADS: [torch.full((3,), 2.0)], WANTED: wanted, ARGUMENTS: by_argument}
    return function_named(GRADIENT + op)(*args, **kwargs, **given)


@pytest.mark.parametrize("by_argument", [True, False])
@pytest.mark.parametrize(
    ("op", "kwargs"), [("Tensor.mul", {}), ("Tensor.mul_", {}), ("aten::mul_.Tensor", {})]
)
def test_a_function_that_writes_to_its_argument_has_the_gradients_of_its_other_form(
    op: str, kwargs: Any, *, by_argument: bool
) -> None:
    x, y = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([4.0, 5.0, 6.0])
    found = gradients(op, x, y, wanted=["0", "1"], by_argument=by_argument, **kwargs)
    assert [each.tolist() for each in found] == [[8.0, 10.0, 12.0], [2.0, -4.0, 6.0]]
    assert x.tolist() == [1.0, -2.0, 3.0]


def test_so_has_an_augmented_assignment() -> None:
    x, y = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([4.0, 5.0, 6.0])
    found = gradients("Tensor.__imul__", x, y, wanted=["0", "1"], by_argument=True)
    assert [each.tolist() for each in found] == [[8.0, 10.0, 12.0], [2.0, -4.0, 6.0]]
    assert x.tolist() == [1.0, -2.0, 3.0]


def test_so_has_one_that_is_asked_to() -> None:
    x = torch.tensor([1.0, -2.0, 3.0])
    (found,) = gradients(
        "torch.nn.functional.relu", x, wanted=["0"], by_argument=True, inplace=True
    )
    assert (found.tolist(), x.tolist()) == ([2.0, 0.0, 2.0], [1.0, -2.0, 3.0])
