# SPDX-License-Identifier: Apache-2.0
"""A process that dies inside a call, by the real command line: the call, its forward call and line,
and its inputs are known.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.told_reasons import unexplained

import opscope
from opscope.scan.api import scan

pytestmark = pytest.mark.zoo

DIES = """
import os, signal, sys, warnings, torch
warnings.simplefilter("ignore")
library = torch.library.Library("aten", "IMPL")
def tanh_backward(grad, y):
    if grad.shape[0] == 7:
        {death}
    return grad * (1 - y * y)
library.impl("tanh_backward", tanh_backward, "CPU")
if __name__ == "__main__":
    layer = torch.nn.Linear(3, 3)
    for rows in (5, 6, 7):
        y = torch.tanh(layer(torch.ones(rows, 3)))
        y.sum().backward()
"""


@pytest.mark.parametrize(
    ("death", "code"),
    [
        ("os.abort()", 134),
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("raise RuntimeError('CUDA error: gone')", 1),
    ],
    ids=["abort", "exit", "kill", "device error"],
)
def test_a_process_that_dies_in_a_call(death: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DIES.format(death=death))

    def opscope_says(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "opscope", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            env=dict(os.environ),
        )

    assert (
        opscope_says(
            "run", "-o", "run", "--journal", "tanh*", "--", sys.executable, "train.py"
        ).returncode
        == code
    )
    finding = scan(opscope.open_run(str(tmp_path / "run"))).findings[0]
    assert (finding.kind, finding.op) == ("crash", "aten::tanh_backward.default")
    assert unexplained([finding]) == []
    assert finding.forward is not None
    assert finding.forward.op == "aten::tanh.default"
    assert str(finding.source).endswith("train.py:13")
    assert finding.confidence == ("suspected" if code == 1 else "likely")
    done = opscope_says(
        "repro", "run", str(finding.call), "-o", "case", "--import", "train.py", "--repeat", "1"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert (
        "f32[7, 3]" in (tmp_path / "case" / "README.md").read_text() or "f32[7, 3]" in done.stdout
    )
