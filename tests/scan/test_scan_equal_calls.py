# SPDX-License-Identifier: Apache-2.0
"""The same call on the same bits on several ranks: told where one makes something else, and what may
differ.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.questions.builder import Builder, state

from opscope.run.finding import Finding
from opscope.scan.api import scan

ARGS = '{"args":[{"tensor": "0"}, {"tensor": "1"}, 1], "kwargs": {}}'
OTHER: dict[str, Any] = {"digest": 900, "l2norm": 3.0}


def made(
    *,
    op: str = "softmax",
    source: str = "mul",
    result: dict[str, Any] = OTHER,
    given: dict[str, Any] | None = None,
    args: str | None = None,
    again: dict[str, Any] | None = None,
) -> list[Finding]:
    """Three ranks that make something of the same two inputs, the last one `result`.

    source: the operator that made the first input; given: changes of it on every rank; args: those
    of the last rank; again: the result of the last rank when it makes the call once more.
    """
    rows = Builder()
    for rank in range(3):
        at: dict[str, Any] = {"process": rank, "source": "/tp.py:7"}
        last = rank == 2
        first = state(1, **{"digest": 1, "l2norm": 2.0, **(given or {})})
        weight = state(2, digest=2, l2norm=1.0, role="parameter", tensor_name="w", min=1, max=1)
        rows.call(source, [], [first], **at)
        for change in (result, again) if last and again is not None else (result,):
            out = state(3, **{"digest": 3, "l2norm": 2.0, **(change if last else {})})
            rows.call(op, [first, weight], [out], args=args if last and args else ARGS, **at)
    found = scan(rows.run()).findings
    return [finding for finding in found if finding.kind == "rank-mismatch"]


def test_a_kernel_that_is_wrong_on_one_rank_is_told_with_rank_and_line() -> None:
    (finding,) = made()
    assert (finding.rank, finding.op, finding.source) == (2, "aten::softmax.default", "/tp.py:7")
    assert finding.confidence == "suspected"
    assert "rank 2 and rank 0 call it with the same bits" in finding.reasons[0]


@pytest.mark.parametrize(
    "healthy",
    [
        {"result": {}},
        {"result": {"digest": 900, "l2norm": 2.00001}},  # the order of a sum
        {"op": "native_dropout"},
        {"op": "empty_like"},
        {"op": "mylib::part_of_rank"},
        {"source": "empty"},  # filled by what no row tells
        {"source": "view"},
        {"given": {"min": 0.0, "max": 0.0}},  # filled later, perhaps through NumPy
        {"given": {"digest": None}},
        {"args": ARGS.replace("1]", "2]")},
        {"again": {}},  # a rank that does not always get the same
    ],
    ids=str,
)
def test_what_may_differ_is_let_alone(healthy: dict[str, Any]) -> None:
    assert made(**healthy) == []
