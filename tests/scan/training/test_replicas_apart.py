# SPDX-License-Identifier: Apache-2.0
"""Ranks that begin alike and train each by itself, and ranks that may."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scan.test_scan_ranks import all_reduce, trained

from opscope.scan.api import scan

STEPS = 6


def notes(*, alone_from: int = 0, begin_alike: bool = True, meet: bool = True, **more: Any) -> list:
    """What is said of two ranks that exchange gradients up to a step, and none from then on.

    averaged: a step in which both read the same weight again.
    """

    def change(rank: int, step: int) -> dict[str, int]:
        own = 1000 * rank
        if step < alone_from:
            return {}
        apart = step > alone_from or not begin_alike
        apart = apart and step != more.get("averaged")
        return {
            "lost": 1,
            "weight": 100 + step + own * apart,
            "after": 101 + step + own,
            "local": 300 + step + own,
        }

    rows = trained(change, steps=STEPS)
    if meet:
        rows.step = 0
        for rank in range(2):
            all_reduce(rows, rank, 7 + rank, 9, source="/train.py:3")
    told = scan(rows.run()).summary["training"]
    return [note for note in told if note["kind"] == "replicas-apart"]


@pytest.mark.parametrize("alone_from", [0, 2])
def test_replicas_that_no_longer_exchange_are_told(alone_from: int) -> None:
    (note,) = notes(alone_from=alone_from)
    assert note["parameters"] == ("fc.weight",)
    assert f"up to step {alone_from}" in note["words"]


@pytest.mark.parametrize(
    "options",
    [
        {"alone_from": STEPS},  # they exchange all the time
        {"begin_alike": False},  # models of their own
        {"meet": False},  # processes that know nothing of each other
        {"averaged": 4},  # parameters are averaged now and then
        {"alone_from": STEPS - 2},  # too few steps to say
    ],
)
def test_ranks_that_may_train_by_themselves_are_let_alone(options: dict[str, Any]) -> None:
    assert notes(**options) == []
