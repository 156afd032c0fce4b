# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels inside real trainings, by the real command line: bisect names the operator,
minimize shrinks its case.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.wrong_kernels.kernels import CATALOGUE

from opscope.repro.case import read_case

pytestmark = pytest.mark.zoo
ROOT = Path(__file__).parents[2]


def opscope_says(
    *words: str, cwd: Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        **(variables or {}),
    }
    return subprocess.run(
        [sys.executable, "-m", "opscope", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=400,
        env=environment,
    )


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        ("gelu-raises", "aten::gelu_backward.default"),
        ("tanh-backward-rare-nan", "aten::tanh_backward.default"),
        ("group-norm-aborts", "aten::native_group_norm_backward.default"),
    ],
)
def test_bisect_names_the_operator_of_a_training(kernel: str, op: str, tmp_path: Path) -> None:
    done = opscope_says(
        "bisect",
        "--json",
        "-o",
        "search",
        "--",
        sys.executable,
        "-m",
        "tests.wrong_kernels.kernels",
        kernel,
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["summary"]["guilty"] == [op]
    assert document["findings"][0]["confidence"] == "proven"


@pytest.mark.parametrize(
    "kernel",
    [
        "mm-tile",
        "attention-backward",
        "silu-stale",
        "sgd-ignores-alpha",
        "sigmoid-flaky",
        "embedding-last-row",
    ],
)
def test_bisect_suspects_the_operator_of_a_training_that_fails_in_no_way_to_be_seen(
    kernel: str, tmp_path: Path
) -> None:
    done = opscope_says(
        "bisect",
        "--json",
        "-o",
        "search",
        "--",
        sys.executable,
        "-m",
        "tests.wrong_kernels.kernels",
        kernel,
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["summary"]["guilty"] == [CATALOGUE[kernel].op]
    assert document["summary"]["proven"] is False
    assert document["findings"][0]["confidence"] == "likely"


METRIC = """
import warnings, torch
warnings.simplefilter("ignore")
library = torch.library.Library("aten", "IMPL")
library.impl("tanh_backward", lambda grad, out: grad * (1 - out * out) * torch.where(out > 0.1, -1.0, 1.0), "CPU")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
x = torch.randn(256, 8)
for step in range(30):
    loss = (net(x) - x[:, :1] * x[:, 1:2] - x[:, 2:3]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}")
"""


def test_bisect_proves_by_a_metric_which_operator_keeps_a_training_from_learning(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(METRIC)
    done = opscope_says(
        "bisect",
        "--json",
        "--metric",
        "loss<0.86",
        "-o",
        "search",
        "--",
        sys.executable,
        "train.py",
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["summary"]["guilty"] == ["aten::tanh_backward.default"]
    assert document["summary"]["proven"] is True
    assert document["findings"][0]["confidence"] == "proven"


SETTING = """
import os, torch
if os.environ.get("FAST"):
    torch.set_float32_matmul_precision("medium")
model = torch.nn.Linear(4, 4)
loss = model(torch.ones(2, 4)).sum() * (float("inf") if torch.get_float32_matmul_precision() == "medium" else 1)
loss.backward()
"""


def test_bisect_finds_the_setting_in_which_two_runs_differ(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SETTING)
    command = ("--", sys.executable, "train.py")
    for name, fast in (("bad", "1"), ("good", "")):
        assert (
            opscope_says(
                "run", "-o", name, *command, cwd=tmp_path, variables={"FAST": fast}
            ).returncode
            == 0
        )
    done = opscope_says(
        "bisect", "--json", "--between", "bad", "good", "-o", "search", *command, cwd=tmp_path
    )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["summary"]["guilty"] == [
        "flag get_float32_matmul_precision: medium -> highest"
    ]


WRONG = """
import warnings, torch
warnings.simplefilter("ignore")
library = torch.library.Library("aten", "IMPL")
library.impl("relu", lambda x: torch.where(x > 3.9, x * 1.5, torch.clamp(x, min=0)), "CPU")
"""
TRAIN = """
import wrong, torch
torch.manual_seed(0)
x = torch.randn(1000, 1000).clamp(max=3.8)
x[417, 733] = 3.95
print(torch.relu(x).sum())
"""


def test_a_silently_wrong_element_of_a_million(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "train.py").write_text(TRAIN)
    assert (
        opscope_says(
            "run", "-o", "run", "--values", "full", "--", sys.executable, "train.py", cwd=tmp_path
        ).returncode
        == 0
    )
    cut = opscope_says(
        "repro", "run", "<root>:relu#1", "-o", "case", "--import", "wrong.py", cwd=tmp_path
    )
    assert "1 of 1000000 elements of output 0 are wrong" in " ".join(cut.stdout.split()), (
        cut.stdout + cut.stderr
    )
    done = opscope_says("minimize", "case", "--import", "wrong.py", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    summary = json.loads(done.stdout)["summary"]
    assert summary["before"]["elements"] == 1000000
    assert summary["after"]["elements"] < 100
    assert summary["outcome"]["status"] == "reproduced"
    assert read_case(tmp_path / "case-min").failure.kind == "mismatch"
