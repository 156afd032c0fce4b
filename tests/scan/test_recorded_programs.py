# SPDX-License-Identifier: Apache-2.0
"""The same programs through opscope's own recorder and store: the same verdicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.scan import faulty, healthy_guards

import opscope
from opscope.operators.catalogue import family
from opscope.run.finding import Document


def recorded(program: Callable[[], object], place: Path, *, show_hidden: bool = False) -> Document:
    with opscope.record(place / "run"):
        program()
    return opscope.scan(opscope.open_run(place / "run"), show_hidden=show_hidden)


@pytest.mark.parametrize("name", healthy_guards.PROGRAMS)
def test_healthy(name: str, tmp_path: Path) -> None:
    document = recorded(healthy_guards.PROGRAMS[name], tmp_path)
    assert [(finding.call, finding.reasons) for finding in document.findings] == []


@pytest.mark.parametrize("name", faulty.PROGRAMS)
def test_faulty(name: str, tmp_path: Path) -> None:
    expected = faulty.PROGRAMS[name]
    document = recorded(expected.program, tmp_path, show_hidden=expected.guarded)
    assert document.findings, document.summary
    first = document.findings[0]
    assert (family(first.op or ""), first.phase, first.status) == (
        expected.op,
        expected.phase,
        expected.status,
    )
    evidence = first.evidence[0]
    assert (evidence["reached"], evidence["arrived"]) == (expected.reached, expected.arrived)
    hidden = evidence["hidden_by"]
    assert (
        hidden and expected.hidden_by and expected.hidden_by in hidden
    ) or hidden == expected.hidden_by
    assert (None if first.forward is None else family(first.forward.op)) == expected.forward
    others = {family(finding.op or "") for finding in document.findings[1:]}
    assert others <= set(expected.others)
