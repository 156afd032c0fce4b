# SPDX-License-Identifier: Apache-2.0
"""Every faulty program is accused of the right operator, and of no other."""

from __future__ import annotations

import pytest
from tests.scan.faulty import PROGRAMS
from tests.scan.recorder import record

from opscope.operators.catalogue import family
from opscope.scan.api import scan


@pytest.mark.parametrize("name", PROGRAMS)
def test_first_finding_is_the_origin(name: str) -> None:
    expected = PROGRAMS[name]
    run = record(expected.program)
    plain, document = scan(run), scan(run, show_hidden=True)
    assert (plain.verdict, plain.summary["hidden"]) == (
        ("clean", 1) if expected.guarded else ("found", 0)
    )
    assert document.verdict == "found"
    first = document.findings[0]
    assert (family(first.op or ""), first.phase, first.status) == (
        expected.op,
        expected.phase,
        expected.status,
    )
    evidence = first.evidence[0]
    assert evidence["reached"] == expected.reached
    hidden = evidence["hidden_by"]
    assert (
        hidden and expected.hidden_by and expected.hidden_by in hidden
    ) or hidden == expected.hidden_by
    assert evidence["arrived"] == expected.arrived
    assert expected.says in " ".join(first.reasons)
    assert first.confidence == expected.confidence
    assert (None if first.forward is None else family(first.forward.op)) == expected.forward
    others = {family(finding.op or "") for finding in document.findings[1:]}
    assert others <= set(expected.others)
