# SPDX-License-Identifier: Apache-2.0
"""Tables of a run in pandas, polars and pyarrow, in the interpreter that OPSCOPE_TABLES_PYTHON
names.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch

import opscope

PYTHON = os.environ.get("OPSCOPE_TABLES_PYTHON")
READ = Path(__file__).with_name("tables_read.py")
SOURCE = Path(__file__).parents[2] / "src"
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_TABLES_PYTHON names no interpreter"),
]


def test_they_hold_the_same_cells(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run", values="none") as recording:
        for _ in range(3):
            torch.nn.Linear(4, 4)(torch.full((2, 4), 3e38)).sum().backward()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [str(PYTHON), str(READ), str(recording.path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    rows = dict(line.split() for line in done.stdout.splitlines())
    assert int(rows["calls"]) > 10
    assert int(rows["tensors"]) > int(rows["calls"])
