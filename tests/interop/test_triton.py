# SPDX-License-Identifier: Apache-2.0
"""The fused kernel in the interpreter that OPSCOPE_TRITON_PYTHON names, where Triton is: executed
by Triton's interpreter, and compiled for GPUs that are not here.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PYTHON = os.environ.get("OPSCOPE_TRITON_PYTHON")
ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_TRITON_PYTHON names no interpreter"),
]


def execute(*words: str) -> str:
    done = subprocess.run(
        [str(PYTHON), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_answers_what_the_hosts_kernels_do() -> None:
    told = execute("-m", "pytest", "-q", "-p", "no:opscope", "tests/kernels/test_fused.py")
    assert " passed" in told
    assert "skipped" not in told


def test_it_compiles_for_gpus_and_keeps_its_elements_in_registers() -> None:
    told = execute("benchmarks/fused_kernel.py", "--types", "float32,bfloat16")
    rows = [line.strip("| ").split(" | ") for line in told.splitlines()[2:]]
    assert [(row[0], row[1]) for row in rows] == [
        (target, name)
        for target in ("sm_80", "sm_90", "gfx942")
        for name in ("float32", "bfloat16")
    ]
    assert {row[3] for row in rows} == {"0"}, "bytes or registers spilled"
