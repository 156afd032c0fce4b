# SPDX-License-Identifier: Apache-2.0
"""Without the compiled kernels the NumPy reference serves, and says so once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from opscope.kernels import statistics

SOURCE = Path(__file__).resolve().parents[2] / "src"
PROGRAM = """
import json, sys, warnings
sys.modules["opscope.kernels._native"] = None
import numpy as np
from opscope import kernels
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    found = [kernels.statistics(np.arange(-5.0, 1000.0)) for _ in range(3)]
    available = kernels.native_available()
print(json.dumps([available, [(w.category.__name__, str(w.message)) for w in seen], [s.digest for s in found], found[0].mean]))
"""


def run(program: str, **environment: str) -> str:
    given = {**os.environ, "PYTHONPATH": str(SOURCE), **environment}
    return subprocess.run(
        [sys.executable, "-c", program], env=given, check=True, capture_output=True, text=True
    ).stdout


def test_the_reference_serves_with_one_warning() -> None:
    available, warned, digests, mean = json.loads(run(PROGRAM))
    native = statistics(np.arange(-5.0, 1000.0))
    assert available is False
    assert [kind for kind, _ in warned] == ["RuntimeWarning"]
    assert "compiled kernels" in warned[0][1]
    assert digests == [native.digest] * 3
    assert mean == native.mean


def test_the_environment_chooses_the_instruction_set() -> None:
    program = "from opscope.kernels import compiled; print(compiled.load().isa())"
    assert run(program, OPSCOPE_ISA="scalar").strip() == "scalar"
    assert run(program, OPSCOPE_ISA="none such") == run(program, OPSCOPE_ISA="")


def test_importing_the_kernels_loads_no_framework() -> None:
    assert (
        run(
            "import sys, opscope.kernels, opscope.kernels.device; print('torch' in sys.modules)"
        ).strip()
        == "False"
    )
