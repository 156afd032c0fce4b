# SPDX-License-Identifier: Apache-2.0
"""IPython, TensorBoard, MLflow, Weights & Biases, SwanLab and OpenTelemetry themselves, in the interpreter that OPSCOPE_DASHBOARDS_PYTHON names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PYTHON = os.environ.get("OPSCOPE_DASHBOARDS_PYTHON")
WRITE = Path(__file__).with_name("dashboards_write.py")
SOURCE = Path(__file__).parents[2] / "src"
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_DASHBOARDS_PYTHON names no interpreter"),
]


def test_a_cell_is_recorded_and_its_run_is_on_the_dashboards(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OPSCOPE")}
    environment.update(PYTHONPATH=str(SOURCE), OMP_NUM_THREADS="1")
    done = subprocess.run(
        [str(PYTHON), str(WRITE), str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "ZeroDivisionError" in done.stdout
    assert "aten::pow.Tensor_Scalar" in lines
    assert "wandb True True" in lines
    assert "swanlab True True" in lines
    assert "opentelemetry opscope.finding aten::pow.Tensor_Scalar" in lines
    assert "html True" in lines
    assert lines[-2:] == ["tensorboard 0 True True", "mlflow 0 True True"]
