# SPDX-License-Identifier: Apache-2.0
"""Of ranks that ended together the one that ended first is told, and nobody where that is not
known.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.questions.builder import Builder, state

from opscope.run.finding import Finding
from opscope.scan.api import scan

GONE = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer (/train.py:9)"
OWN = "ValueError: bad sample 17 (/data.py:31)"


def ended(
    *ends: dict[str, Any], last: str = "aten::mm.default", error: str | None = None
) -> list[Finding]:
    """Ranks of which each ended so: the first one's last operator is `last`, of the others an
    exchange.
    """
    rows = Builder()
    for rank, end in enumerate(ends):
        at: dict[str, Any] = {"process": rank, "rank": rank, "source": "/train.py:7"}
        rows.call("aten::mm.default", [state(1, digest=1)], [state(2, digest=2)], **at)
        if rank == 0:
            rows.call(last, [state(2, digest=2)], [], error=error, **at)
        else:
            failed = end.pop("error", None)
            rows.call(
                "c10d::allreduce_.default",
                [state(2, digest=2)],
                [],
                phase="communication",
                error=failed,
                **at,
            )
        rows.ends(rank, world=len(ends), **end)
    return [finding for finding in scan(rows.run()).findings if finding.kind == "crash"]


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ({"exit_code": 1, "uncaught": OWN}, "ended with ValueError: bad sample 17 (/data.py:31)"),
        ({"exit_code": 7}, "ended with exit code 7"),
        ({}, "without saying why"),
    ],
)
@pytest.mark.parametrize("other", [{"exit_code": 1, "uncaught": GONE}, {"error": "unfinished"}])
def test_the_rank_that_others_missed_is_told(
    end: dict[str, Any], says: str, other: dict[str, Any]
) -> None:
    first = ended(dict(end), dict(other), dict(other))[0]
    assert (first.rank, first.op, first.confidence) == (0, "aten::mm.default", "likely")
    assert says in first.reasons[0]
    assert first.reasons[1] == "ranks 1, 2 ended in exchanges, where it was missing"


def test_a_call_that_failed_is_told_of_itself() -> None:
    (first,) = ended(
        {"exit_code": 1, "uncaught": "RuntimeError: shapes"},
        {"exit_code": 1, "uncaught": GONE},
        error="RuntimeError: shapes",
    )
    assert first.reasons[0] == "RuntimeError: shapes"


def test_an_exception_that_no_call_raised_is_a_warning() -> None:
    rows = Builder()
    rows.call("aten::mm.default", [state(1, digest=1)], [state(2, digest=2)])
    rows.ends(0, exit_code=1, uncaught=OWN)
    document = scan(rows.run())
    assert document.findings == ()
    assert f"the program ended with {OWN}" in document.summary["warnings"]


@pytest.mark.parametrize(
    "ends",
    [
        ({"exit_code": 0}, {"exit_code": 0}),  # all is well
        ({}, {}),  # children of another launcher, that ended as they should
        ({"exit_code": 1, "uncaught": OWN}, {"exit_code": 1, "uncaught": OWN}),  # each by itself
        ({"exit_code": 0}, {"exit_code": 1, "uncaught": GONE}),  # nobody here left
        ({"exit_code": 130}, {"exit_code": 130, "error": "KeyboardInterrupt"}),  # Ctrl-C
        ({"signal": 15}, {"error": "unfinished"}),  # their launcher stopped them
    ],
)
def test_nobody_is_told_where_none_ended_before_the_others(
    ends: tuple[dict[str, Any], ...],
) -> None:
    told = ended(*(dict(end) for end in ends))
    assert not any("where it was missing" in str(finding.reasons) for finding in told)
