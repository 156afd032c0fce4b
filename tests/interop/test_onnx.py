# SPDX-License-Identifier: Apache-2.0
"""ONNX models beside the model that they were exported from, by the real exporter and ONNX Runtime,
in the interpreter that OPSCOPE_ONNX_PYTHON names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("OPSCOPE_ONNX_PYTHON")
NETS, WRITE = (Path(__file__).with_name(f"onnx_{name}.py") for name in ("nets", "write"))
MODELS = ("UNet", "Recurrent", "Gpt", "Encoder", "Mobile", "Boxes")
FAULTS = {  # of which operator and line they are
    "UNet-eps": ("InstanceNormalization", "self.down(kept)"),
    "UNet-corners": ("Resize", "functional.interpolate"),
    "UNet-order": ("Concat", "torch.cat([y, kept], 1)"),
    "UNet-flipped": ("ConvTranspose", "self.up("),
    "UNet-gate": ("HardSigmoid", "self.down(kept)"),
    "UNet-bias": ("Conv", "self.down(kept)"),
    "Recurrent-gates": ("LSTM", "self.cells("),
    "Recurrent-mean": ("ReduceSum", "y.mean(1)"),
    "Recurrent-rows": ("Gather", "self.words("),
    "Gpt-eps": ("LayerNormalization", "self.before(x)"),
    "Gpt-gelu": ("Gelu", "functional.gelu("),
    "Gpt-axis": ("Softmax", "scores.softmax(-1)"),
    "Gpt-head": ("MatMul", "self.head(x)"),
    "Encoder-log": ("LogSoftmax", "log_softmax(-1)"),
    "Mobile-swish": ("HardSigmoid", "self.act("),
    "Mobile-pads": ("Conv", "self.first(x)"),
    "Mobile-mean": ("ReduceMax", "y.mean((2, 3))"),
    "Boxes-leaky": ("LeakyRelu", "functional.leaky_relu("),
    "Boxes-best": ("TopK", "scores.topk("),
    "Boxes-axis": ("Softmax", "softmax(-1)"),
}
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_ONNX_PYTHON names no interpreter"),
]


def execute(python: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, *words], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of all models, and what they were exported to."""
    made = tmp_path_factory.mktemp("onnx")
    for name in MODELS:
        words = ("run", "--values", "full", "-o", str(made / name), "--")
        done = execute(sys.executable, "-m", "opscope", *words, sys.executable, str(NETS), name)
        assert done.returncode == 0, done.stderr
    done = execute(str(PYTHON), str(WRITE), str(made))
    assert done.returncode == 0, done.stderr
    return made


def compared(folder: Path, exported: str) -> tuple[int, dict[str, Any]]:
    run = folder / exported.partition("-")[0]
    words = ("compare", "--json", "--export", str(folder / f"{exported}.onnx"), str(run))
    done = execute(str(PYTHON), "-m", "opscope", *words)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("name", [f"{name}{ending}" for name in MODELS for ending in ("", "-old")])
def test_what_was_exported_soundly_agrees(folder: Path, name: str) -> None:
    code, told = compared(folder, name)
    assert (code, told["findings"]) == (0, [])


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_node_is_named_at_the_line_of_the_model(folder: Path, name: str) -> None:
    op, line = FAULTS[name]
    code, told = compared(folder, name)
    first = told["findings"][0]
    file, _, number = first["source"].rpartition(":")
    assert (code, first["op"], file) == (1, f"onnx::{op}", str(NETS))
    assert line in NETS.read_text().splitlines()[int(number) - 1]


def test_what_cannot_be_executed_is_one_line(folder: Path) -> None:
    whole = (folder / "UNet.onnx").read_bytes()
    (folder / "torn.onnx").write_bytes(whole[: len(whole) // 2])
    for model, run in (("torn", "UNet"), ("UNet", "Gpt")):
        words = ("compare", "--export", str(folder / f"{model}.onnx"), str(folder / run))
        done = execute(str(PYTHON), "-m", "opscope", *words)
        assert done.returncode == 2
        assert f"{model}.onnx: not executed on what" in done.stderr
        assert "Traceback" not in done.stderr
