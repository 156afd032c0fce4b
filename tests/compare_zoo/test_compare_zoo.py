# SPDX-License-Identifier: Apache-2.0
"""Seeded differences between two trainings: the right operator comes first, and what is healthy
stays clean.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import compare_faults
import pytest
from compare_faults import FAULTS, HEALTHY, Fault
from tests.told_reasons import unexplained

import opscope
from opscope.operators.catalogue import family
from opscope.run.finding import Finding

pytestmark = pytest.mark.zoo

Golden = Callable[[Fault], Path]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """The healthy run of a fault's model, recorded once."""
    made: dict[str, Path] = {}

    def get(fault: Fault) -> Path:
        key = repr(sorted(fault.both.items()))
        if key not in made:
            made[key] = tmp_path_factory.mktemp("golden") / "run"
            compare_faults.train({**fault.both, "to": made[key]})
        return made[key]

    return get


def compared(fault: Fault, golden: Golden, to: Path) -> opscope.Document:
    """The document of a fault's run against the healthy one."""
    compare_faults.train({**fault.both, **fault.change, "to": to})
    return opscope.compare(to, golden(fault)).document


def matches(finding: Finding, fault: Fault) -> bool:
    """Whether a finding says what is known of the fault."""
    named = {family(op) for op in fault.ops}
    return (
        finding.kind == fault.kind
        and family(finding.op or "") in named
        and (fault.module is None or finding.module == fault.module)
        and (fault.phase is None or finding.phase == fault.phase)
        and fault.says in " ".join(finding.reasons)
    )


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_names_the_right_operator_first(fault: Fault, golden: Golden, tmp_path: Path) -> None:
    document = compared(fault, golden, tmp_path / "run")
    assert document.verdict == "found"
    assert matches(document.findings[0], fault), document.findings[0]
    assert unexplained(document.findings) == []


@pytest.mark.parametrize("fault", HEALTHY, ids=lambda fault: fault.name)
def test_healthy_changes_are_clean(fault: Fault, golden: Golden, tmp_path: Path) -> None:
    document = compared(fault, golden, tmp_path / "run")
    assert document.verdict == "clean", document.findings
    assert document.complete
