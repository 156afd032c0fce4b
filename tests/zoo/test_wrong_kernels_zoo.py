# SPDX-License-Identifier: Apache-2.0
"""The whole catalogue of wrong kernels under --check; a few of it, and substitutes, through the
real command line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.wrong_kernels import healthy, rare, wide
from tests.wrong_kernels.kernels import CATALOGUE

import opscope

pytestmark = pytest.mark.zoo
ROOT = Path(__file__).parents[2]
RETURNING = [
    name for name, entry in CATALOGUE.items() if entry.kind not in ("raise", "abort", "hang")
]


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("name", RETURNING)
def test_check_names_every_wrong_kernel(name: str, tmp_path: Path) -> None:
    entry = CATALOGUE[name]
    with opscope.record(tmp_path / "run", check=True), entry.installed():
        entry.program(2)
    first = opscope.scan(opscope.open_run(tmp_path / "run")).findings[0]
    # What only other kernels call has no row: it is named with the one that called it.
    assert first.op == entry.op or any(
        f"{entry.op.rpartition('.')[0]}, registered" in reason for reason in first.reasons
    )


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize(
    "program",
    [
        wide.tables,
        wide.tables_float16,
        wide.pictures,
        wide.speech,
        wide.speech_float64,
        *rare.PROGRAMS,
    ],
)
def test_the_healthy_programs_of_the_wide_catalogue_are_accused_of_nothing(
    program: Callable[[int], list[float]], tmp_path: Path
) -> None:
    alone = program(2)
    with opscope.record(tmp_path / "run", check=True):
        assert program(2) == alone
    run = opscope.open_run(tmp_path / "run")
    assert opscope.scan(run).verdict == "clean"
    assert run.processes[0].checked["unjudged"] == {}


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "autocast"])
@pytest.mark.parametrize("model", ["lstm", "resnet"])
def test_models_in_every_type_are_accused_of_nothing(
    model: str, dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    optimizer = "sgd" if dtype == "float16" else "adamw"  # whose epsilon is 0 in float16
    try:
        healthy.main(model, dtype, 3, optimizer)
    except RuntimeError as error:  # this processor has no such kernel
        if "could not create a primitive" not in str(error):
            raise
        pytest.skip(str(error))
    alone = capsys.readouterr().out
    with opscope.record(tmp_path / "run", check=True):
        healthy.main(model, dtype, 3, optimizer)
    assert capsys.readouterr().out == alone
    assert opscope.scan(opscope.open_run(tmp_path / "run")).findings == ()


def command(tmp_path: Path, *options: str, program: str) -> tuple[str, Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    words = [
        sys.executable,
        "-m",
        "opscope",
        "run",
        *options,
        "-o",
        str(tmp_path / "run"),
        "--json-file",
        str(tmp_path / "run.json"),
    ]
    words += ["--", sys.executable, "-W", "ignore", "-m", "tests.wrong_kernels.kernels", program]
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=240, check=True
    )
    return done.stdout, json.loads((tmp_path / "run.json").read_text())


def test_check_on_the_command_line_names_the_operator_and_its_forward(tmp_path: Path) -> None:
    _, document = command(tmp_path, "--check", program="layer-norm-backward")
    first = document["findings"][0]
    assert (first["kind"], first["op"]) == (
        "replay-mismatch",
        "aten::native_layer_norm_backward.default",
    )
    assert first["forward"]["op"] == "aten::native_layer_norm.default"


def test_substitute_on_the_command_line_gives_the_healthy_losses(tmp_path: Path) -> None:
    from tests.wrong_kernels.kernels import scores

    losses, _ = command(
        tmp_path, "--substitute", "aten::nll_loss_backward=cpu", program="nll-loss-backward-scale"
    )
    assert [float(each) for each in losses.split()] == pytest.approx(scores(2), rel=1e-5)


def test_the_verdict_of_a_substituted_run_stands_beside_that_of_the_run_without(
    tmp_path: Path,
) -> None:
    options = [
        "--check",
        "--substitute",
        "aten::nll_loss_backward=cpu",
        "--beside",
        str(tmp_path / "without"),
    ]
    _, document = command(tmp_path, *options, program="nll-loss-backward-scale")
    assert document["verdict"] == "clean"
    (gone,) = document["summary"]["beside"]["gone"]
    assert "aten::nll_loss_backward" in gone
    assert opscope.open_run(tmp_path / "without").processes[0].substituted == {}
