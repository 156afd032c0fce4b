# SPDX-License-Identifier: Apache-2.0
"""Gradients of a sharded model, scaled on each rank by a number."""

from __future__ import annotations

from typing import Any

import pytest
from tests.questions.builder import Builder, state

from opscope.scan.api import scan

STEPS = 4


def notes(numbers: Any, *, role: str | None = "shard", used: bool = True) -> list[dict[str, Any]]:
    """What is said of two ranks that scale their part of a gradient by numbers(rank, step)."""
    rows = Builder()
    for rank in range(2):
        at = {"process": rank, "source": "/train.py:7"}
        for step in range(STEPS):
            rows.step, own = step, 1000 * (rank + 1) + 10 * step
            number = numbers(rank, step)
            factor = {"slot": "1", "size": 1, "shape": (1,), "min": number, "max": number}
            part = {"size": 64, "shape": (64,)}
            rows.call(
                "aten::mul_.Tensor",
                [state(own, digest=own, **part), state(own + 1, digest=7, **factor)],
                [state(own + 2, digest=own + 2, **part)],
                phase="forward",
                **at,
            )
            read = own + 2 if used else own + 5
            rows.call(
                "aten::add_.Tensor",
                [
                    state(own + 3, digest=own + 3, role=role, tensor_name="fc.weight", **part),
                    state(own + 4, digest=read, slot="1", **part),
                ],
                [state(own + 6, digest=own + 6, role=role, tensor_name="fc.weight", **part)],
                phase="optimizer",
                **at,
            )
    told = scan(rows.run()).summary["training"]
    return [note for note in told if note["kind"] == "clipped-apart"]


def test_parts_that_are_scaled_by_numbers_of_their_own_are_told() -> None:
    (note,) = notes(lambda rank, step: 0.1 + rank / 100)
    assert note["parameters"] == ("fc.weight",)
    assert "0.1 to 0.11 in step 0" in note["words"]


@pytest.mark.parametrize(
    ("numbers", "options"),
    [
        (lambda rank, step: 0.1 + step / 100, {}),  # one number on all ranks
        (lambda rank, step: 0.1 + rank / 100, {"role": "parameter"}),  # no shards
        (lambda rank, step: 0.1 + rank / 100, {"used": False}),  # no gradients of theirs
        (lambda rank, step: 0.1 + rank / 100 * (step == 0), {}),  # in one step alone
    ],
)
def test_what_may_be_scaled_is_let_alone(numbers: Any, options: dict[str, Any]) -> None:
    assert notes(numbers, **options) == []
