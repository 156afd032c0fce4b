# SPDX-License-Identifier: Apache-2.0
"""A scan by real engines, in the interpreter that OPSCOPE_ENGINES_PYTHON names: two worker processes
of Dask, and Ray.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.scale.job import planned, write_job

PYTHON = os.environ.get("OPSCOPE_ENGINES_PYTHON")
SCAN = Path(__file__).with_name("engines_scan.py")
SOURCE = Path(__file__).parents[2] / "src"
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_ENGINES_PYTHON names no interpreter"),
]


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_workers_of_an_engine_find_what_one_process_finds(engine: str, tmp_path: Path) -> None:
    runs = [
        str(
            write_job(
                tmp_path / f"run{seed}", planned(fault, ranks=20, steps=5, layers=2, seed=seed)
            )[0]
        )
        for seed, fault in enumerate((None, "nan_backward"))
    ]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(
        [str(PYTHON), str(SCAN), engine, *runs],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["same clean", "same found"]
