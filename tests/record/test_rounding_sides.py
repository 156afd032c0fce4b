# SPDX-License-Identifier: Apache-2.0
"""Results within a few units of rounding are alike, in every type; what is moved stays in its
type, and by no more than is said.
"""

from __future__ import annotations

import pytest
import torch

from opscope.record.torch.perturbed import MOVED, Perturbed
from opscope.record.torch.windows import NEAR, alike, judge

TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]


def numbers(dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    return (
        torch.randn(4096, dtype=torch.complex128).to(dtype)
        if dtype.is_complex
        else (torch.randn(4096, dtype=torch.float64).to(dtype))
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_results_are_alike_within_so_many_units(dtype: torch.dtype) -> None:
    right, unit = numbers(dtype), torch.finfo(dtype).eps / 2
    assert alike(right, right.clone())
    assert alike(right * (1 + NEAR / 4 * unit), right)
    far = right.clone()
    far[7] += 4 * NEAR * unit * float(right.abs().max())
    assert not alike(far, right)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan, 3e38])
def test_what_is_not_finite_stands_in_the_same_places(value: float) -> None:
    right = numbers(torch.float32)
    right[3] = value
    near = right * (1 + 2.0**-24)
    assert alike(near, right)
    other = right.clone()
    other[3], other[4] = 1.0, value
    assert not alike(other, right)
    assert not alike(numbers(torch.float32), right)
    assert not alike(right, numbers(torch.float32))


def test_integers_are_alike_where_they_are_equal() -> None:
    assert alike(torch.arange(4), torch.arange(4))
    assert not alike(torch.arange(4), torch.tensor([0, 1, 2, 4]))


@pytest.mark.parametrize("dtype", TYPES[:4])
def test_results_are_moved_by_so_many_units_and_no_more(dtype: torch.dtype) -> None:
    given, unit = numbers(dtype), torch.finfo(dtype).eps / 2
    with Perturbed(0):
        once = given * 1
    with Perturbed(1):
        again = given * 1
    assert not torch.equal(once, again)
    for moved in (once, again):
        error = (moved.double() - given.double()).abs() / given.double().abs()
        # and one rounding of what was moved
        assert float(error.max()) <= (MOVED + 1.001) * unit
        assert float(error.max()) > MOVED / 2 * unit


@pytest.mark.parametrize("dtype", TYPES[:4])
def test_what_is_moved_neither_leaves_the_type_nor_enters_it(dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    given = torch.tensor([most, -most, torch.inf, -torch.inf, torch.nan, 0.0], dtype=dtype)
    for seed in range(8):
        with Perturbed(seed):
            moved = given * 1
        assert torch.equal(moved.isfinite(), given.isfinite())
        assert torch.equal(moved[2:4], given[2:4])
        assert moved[5] == 0


def test_what_a_graph_is_given_is_not_moved() -> None:
    given = [torch.arange(1.0, 65.0) / 10, torch.full((64,), 0.1)]

    def run(fresh: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return (fresh[0] // fresh[1],)

    off = [torch.floor(given[0] / given[1])]
    found = judge(off, run, given)
    assert found is not None
    assert found.deviation.elements == int((off[0] != run(given)[0]).sum())

    def rounded(fresh: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return ((fresh[0] * fresh[1] / fresh[1]) // fresh[1],)  # what is floored is rounded here

    assert judge([torch.floor(given[0] / given[1])], rounded, given) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64, torch.bool])
def test_nothing_is_asked_of_what_nobody_wrote(dtype: torch.dtype) -> None:
    def run(fresh: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        unset = torch.empty(64, dtype=dtype)
        unset[:32] = fresh[0]
        return (unset,)

    written = torch.ones(32).to(dtype)
    held = torch.cat([written, torch.zeros(32).to(dtype)])
    other = torch.cat([written, torch.tensor([True]).expand(32).to(dtype) * 1])
    assert judge([other.to(dtype)], run, [written], eager=[held]) is None
