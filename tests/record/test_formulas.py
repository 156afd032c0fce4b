# SPDX-License-Identifier: Apache-2.0
"""Gradient formulas written in Python: named when they raise or the process dies in them, unseen
otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.autograd.function import BackwardCFunction

import opscope
from opscope.record.torch.formulas import named
from opscope.run.query import calls
from tests.attack import training
from tests.attack.training import Scale

DIES = """
import os, sys, torch
if sys.argv[1] == "operator":
    @torch.library.custom_op("mine::act", mutates_args=())
    def act(x: torch.Tensor) -> torch.Tensor:
        return x.tanh()
    def back(ctx, grad):
        grad = grad * 2
        {death}
    act.register_autograd(back)
else:
    class Act(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.tanh()
        @staticmethod
        def backward(ctx, grad):
            grad = grad * 2
            {death}
    act = Act.apply
layer = torch.nn.Linear(3, 3)
act(layer(torch.ones(2, 3))).sum().backward()
"""


def test_a_formula_that_returns_leaves_no_trace(tmp_path: Path) -> None:
    before = BackwardCFunction.apply
    x = torch.ones(3, requires_grad=True)
    with opscope.record(tmp_path / "run"):
        y = Scale.apply(x)
        y.sum().backward()
    assert BackwardCFunction.apply is before
    assert x.grad is not None
    assert x.grad.tolist() == [1.5] * 3
    run = opscope.open_run(tmp_path / "run")
    assert not [call for call in calls(run) if call.op is not None and "Scale" in call.op]
    assert not run.problems
    name, source = named(type(y.grad_fn))
    assert name == "tests.attack.training.Scale.backward"
    assert source is not None
    assert source.startswith(training.__file__)


@pytest.mark.zoo
@pytest.mark.parametrize("death", ["os.abort()", "raise RuntimeError('the device is gone')"])
@pytest.mark.parametrize("kind", ["operator", "function"])
def test_the_formula_in_which_a_program_ends_is_named(
    kind: str, death: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(DIES.format(death=death))
    words = [
        sys.executable,
        "-m",
        "opscope",
        "run",
        "-o",
        "run",
        "--",
        sys.executable,
        "train.py",
        kind,
    ]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0
    finding = opscope.scan(opscope.open_run(tmp_path / "run")).findings[0]
    assert (finding.kind, finding.phase) == ("crash", "backward")
    assert finding.op == (
        "mine::act_backward.default" if kind == "operator" else "__main__.Act.backward"
    )
    assert (finding.forward is not None) == (kind == "operator")
    if finding.forward is not None:
        assert finding.forward.op == "mine::act.default"
        assert str(finding.forward.source).endswith("train.py:22")
