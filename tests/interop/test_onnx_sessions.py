# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime inside a torch program, in the interpreter that OPSCOPE_ONNX_PYTHON names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import opscope

PYTHON = os.environ.get("OPSCOPE_ONNX_PYTHON")
NET = Path(__file__).with_name("onnx_session.py")
SOURCE = Path(__file__).parents[2] / "src"
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_ONNX_PYTHON names no interpreter"),
]


def test_a_session_is_where_what_is_not_finite_began(tmp_path: Path) -> None:
    assert PYTHON is not None
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    bare = subprocess.run([PYTHON, NET], env=environment, capture_output=True, check=True)
    words = [sys.executable, "-m", "opscope", "run", "-o", str(tmp_path / "run"), "--", PYTHON, NET]
    watched = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert watched.stdout.splitlines()[0] == bare.stdout.splitlines()[0]
    (found,) = opscope.scan(tmp_path / "run").findings
    assert (found.op, found.kind) == ("compiled::session_0", "overflow-origin")
