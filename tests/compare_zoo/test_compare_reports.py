# SPDX-License-Identifier: Apache-2.0
"""Evaluations that are right and report other things: a loss and an accuracy, nats and bits, each
text and the mean of a batch, one pass and two. Somebody who knew nothing of compare wrote them; it
accuses none.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compare_zoo.ports.runs import recorded_alone

import opscope

REPORTS = Path(__file__).parent / "reports"


@pytest.mark.zoo
@pytest.mark.parametrize("folder", sorted(REPORTS.iterdir()), ids=lambda folder: folder.name)
def test_other_reports_of_the_same_accuse_nobody(folder: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "weights.pt"
    golden = recorded_alone(folder / "original.py", checkpoint, tmp_path / "golden")
    target = recorded_alone(folder / "port.py", checkpoint, tmp_path / "target")
    document = opscope.compare(target, golden).document
    assert not document.findings, document
