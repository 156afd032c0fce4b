# SPDX-License-Identifier: Apache-2.0
"""Ranks that train together and one module's mode: told where it parts and shows, never of a rank
that validates.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.questions.builder import Builder, state

from opscope.run.finding import Finding
from opscope.scan.api import scan

DROP = ["aten::native_dropout.default"]
Modes = dict[str, list[tuple[int, bool]]]


def content(number: int, **columns: Any) -> dict[str, Any]:
    return state(number, digest=number, **columns)


def trained(modes: Modes, ran: dict[int, list[list[str]]], *, shared: bool = True) -> list[Finding]:
    """Two ranks, the modes those of rank 1; ran: operators of module `drop` by rank, for each of
    its calls in a step. shared: whether their gradients are exchanged.
    """
    rows = Builder()
    for rank in range(2):
        at: dict[str, Any] = {"process": rank, "source": "/train.py:7"}
        for step in range(2):
            rows.step = step
            for ops in ran[rank]:
                rows.call("Dropout", [], [], level="module", module="drop", **at)
                for op in ops:
                    rows.call(op, [content(1)], [content(10 + rank)], module="drop", **at)
            gradient = {"role": "gradient", "tensor_name": "fc.weight"}
            number = 20 + step if shared else 30 + 10 * rank + step
            rows.call("mm", [content(2)], [content(number, **gradient)], phase="backward", **at)
        told = {"training": {"modes": modes}} if rank else {}
        rows.ends(rank, exit_code=0, torch=told)
    found = scan(rows.run()).findings
    return [finding for finding in found if finding.kind == "rank-mismatch"]


def test_a_module_in_eval_mode_on_one_rank_is_told_at_its_first_call() -> None:
    (finding,) = trained({"drop": [(0, False)]}, {0: [DROP], 1: [[]]})
    assert (finding.rank, finding.step, finding.op) == (1, 0, "Dropout")
    assert (finding.source, finding.confidence) == ("/train.py:7", "suspected")
    assert "in eval mode on rank 1, in training mode on rank 0" in finding.reasons[0]


def test_a_mode_that_changes_later_is_told_in_that_step() -> None:
    (finding,) = trained({"drop": [(0, True), (2, False)]}, {0: [DROP], 1: [[]]})
    assert finding.step == 1


@pytest.mark.parametrize(
    ("modes", "ran", "shared"),
    [
        ({"drop": [(0, False)]}, {0: [DROP], 1: [DROP]}, True),  # the mode changes nothing
        ({"drop": [(0, False)]}, {0: [DROP], 1: [[]]}, False),  # two models
        ({"drop": [(0, False)]}, {0: [DROP], 1: [[], []]}, True),  # called more often
        # one rank validates after its training call
        (
            {"drop": [(0, True), (2, False), (4, True), (6, False)]},
            {0: [DROP], 1: [DROP, []]},
            True,
        ),
        ({}, {0: [DROP], 1: [[]]}, True),  # nothing is known of modes
    ],
)
def test_what_is_no_mode_of_one_rank(
    modes: Modes,
    ran: dict[int, list[list[str]]],
    shared: bool,
) -> None:
    assert trained(modes, ran, shared=shared) == []
