# SPDX-License-Identifier: Apache-2.0
"""Calls that a checker would decline are made without asking it again, as long as it said and not
longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import opscope
from opscope.kernels import compiled
from opscope.record.active import active
from opscope.record.torch.budget import NEVER, Rest

pytestmark = pytest.mark.skipif(
    compiled.load_recorder() is None, reason="the reference asks for every call"
)


class Declining:
    """A checker that declines every call, and notes which ones it was asked for."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.budget = SimpleNamespace(sampled=0.0)
        self.asked: list[str] = []
        self.told = 0

    def checks(self, func: Any) -> bool:
        return func is not torch.ops.aten.sub.Tensor

    def turn(self, func: Any, args: Any, kwargs: Any, rested: int) -> Rest:
        self.asked.append(func._schema.name)
        self.told += rested
        return self.rest


@contextmanager
def declining(path: Path, rest: Rest) -> Iterator[tuple[Declining, Any]]:
    checker = Declining(rest)
    with opscope.record(path):
        assert active.session is not None
        assert active.session.recorder is not None
        book = active.session.recorder.book
        book.check_with(checker)
        yield checker, book
        book.check_with(None)


def test_a_signature_that_rests_is_asked_for_once(tmp_path: Path) -> None:
    one, other = torch.randn(3, 4), torch.randn(3, 4)
    with declining(tmp_path / "run", NEVER) as (checker, book):
        sums = [torch.add(one, other, alpha=2) for _ in range(5)]
        torch.add(other, one, alpha=2)  # other tensors, the same signature
    assert checker.asked == ["aten::add"]
    assert book.rested == 5
    assert all(torch.equal(each, one + 2 * other) for each in sums)


VARIANTS: list[Callable[[], Any]] = [
    lambda: torch.add(torch.ones(3, 4), torch.ones(3, 4)),
    lambda: torch.add(torch.ones(4, 3), torch.ones(4, 3)),
    lambda: torch.add(torch.ones(3, 4), torch.ones(4, 3).t()),
    lambda: torch.add(torch.ones(3, 4, dtype=torch.float64), torch.ones(3, 4, dtype=torch.float64)),
    lambda: torch.add(torch.ones(3, 4), torch.ones(3, 4), alpha=2),
    lambda: torch.add(torch.ones(3, 4), torch.ones(3, 4), alpha=2.0),
    lambda: torch.add(torch.ones(2, 3, 4)[0], torch.ones(1, 4)),
]


def test_other_shapes_types_strides_and_numbers_are_other_signatures(tmp_path: Path) -> None:
    with declining(tmp_path / "run", NEVER) as (checker, _):
        for _ in range(3):
            for variant in VARIANTS:
                variant()
    assert checker.asked.count("aten::add") == len(VARIANTS)


def test_strides_of_single_rows_count_as_they_do_in_the_budget(tmp_path: Path) -> None:
    wide = torch.ones(4, 8)
    with declining(tmp_path / "run", NEVER) as (checker, _):
        torch.neg(wide[:1])
        torch.neg(wide[:1, :4].as_strided((1, 4), (1, 1)))
        torch.neg(wide[:1, :4])
    assert checker.asked.count("aten::neg") == 3


def test_generators_are_always_asked_for(tmp_path: Path) -> None:
    with declining(tmp_path / "run", NEVER) as (checker, _):
        for seed in range(3):
            torch.rand(2, generator=torch.Generator().manual_seed(seed))
    assert sum("rand" in op or "uniform" in op for op in checker.asked) >= 3


def test_an_operator_that_is_never_checked_is_not_asked_for(tmp_path: Path) -> None:
    one = torch.ones(2)
    with declining(tmp_path / "run", NEVER) as (checker, book):
        torch.sub(one, one)
        torch.sub(one, one)
    assert checker.asked == []
    assert book.rested == 0


@pytest.mark.parametrize(
    ("rest", "asked"),
    [
        (Rest(0.0, 0.0, 9.0), 4),
        (Rest(0.0, 1.0, 9.0), 2),
        (Rest(1e5, 0.0, 9.0), 1),
        (Rest(math.inf, 0.0, math.inf), 1),
        (Rest(math.inf, 0.0, 1.0), 2),
    ],
)
def test_it_is_asked_again_when_its_rest_is_over(tmp_path: Path, rest: Rest, asked: int) -> None:
    with declining(tmp_path / "run", rest) as (checker, book):
        tensor = torch.ones(2)
        for _ in range(3):
            torch.neg(tensor)
        checker.budget.sampled = 1.0
        torch.neg(tensor)
    assert checker.asked.count("aten::neg") == asked
    assert len(checker.asked) + checker.told + book.rested == 5  # ones, and neg four times
