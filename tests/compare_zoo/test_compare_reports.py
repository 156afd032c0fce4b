# SPDX-License-Identifier: Apache-2.0
"""Evaluations that are right and report other things: a loss and an accuracy, nats and bits, each
text and the mean of a batch, one pass and two. Somebody who knew nothing of compare wrote them; it
accuses none.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import opscope

REPORTS = Path(__file__).parent / "reports"


def recorded(program: Path, checkpoint: Path, to: Path) -> Path:
    """A run of a program, which the first of two lets save its weights."""
    command = [sys.executable, "-m", "opscope", "run", "-o", str(to), "--", sys.executable]
    done = subprocess.run(
        [*command, str(program), str(checkpoint)], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr[-3000:]
    return to


@pytest.mark.zoo
@pytest.mark.parametrize("folder", sorted(REPORTS.iterdir()), ids=lambda folder: folder.name)
def test_other_reports_of_the_same_accuse_nobody(folder: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "weights.pt"
    golden = recorded(folder / "original.py", checkpoint, tmp_path / "golden")
    target = recorded(folder / "port.py", checkpoint, tmp_path / "target")
    document = opscope.compare(target, golden).document
    assert not document.findings, document
