# SPDX-License-Identifier: Apache-2.0
"""run --check names the operator whose kernel was made wrong, and nothing else; the whole catalogue
is in tests/zoo.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import opscope
from tests.wrong_kernels.kernels import CATALOGUE, decoder, scores, vision

HERE = (
    "group-norm-backward",
    "attention-backward",
    "mm-wrong-in-bfloat16",
    "silu-stale",
    "batch-norm-running-mean",
    "sigmoid-flaky",
    "dropout-biased",
)


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("name", HERE)
def test_the_wrong_operator_is_named(name: str, tmp_path: Path) -> None:
    entry = CATALOGUE[name]
    with entry.installed(), opscope.record(tmp_path / "run", check=True):
        entry.program(2 if name == "silu-stale" else 1)
    document = opscope.scan(opscope.open_run(tmp_path / "run"))
    assert {finding.op for finding in document.findings} == {entry.op}
    wanted = "nondeterminism" if entry.kind == "flaky" else "replay-mismatch"
    assert wanted in {finding.kind for finding in document.findings}


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("program", [decoder, scores, vision], ids=lambda each: each.__name__)
def test_healthy_programs_are_accused_of_nothing_and_stay_bit_identical(
    program: object, tmp_path: Path
) -> None:
    alone = program(1)
    with opscope.record(tmp_path / "run", check=True):
        watched = program(1)
    run = opscope.open_run(tmp_path / "run")
    assert watched == alone
    assert opscope.scan(run).verdict == "clean"
    checked = run.processes[0].checked
    assert checked["checked"] >= checked["signatures"] > 20
    assert not {"wrong", "flaky"} & set(checked["verdicts"])


@pytest.mark.usefixtures("one_process")
def test_a_finding_keeps_the_inputs_of_its_call(tmp_path: Path) -> None:
    from opscope.repro.build import build
    from opscope.run.query import calls

    with (
        CATALOGUE["nll-loss-backward-scale"].installed(),
        opscope.record(tmp_path / "run", check=True),
    ):
        scores(1)
    run = opscope.open_run(tmp_path / "run")
    finding = opscope.scan(run).findings[0]
    call = next(each for each in calls(run) if each.index == finding.index)
    assert {tensor.values for tensor in build(run, call).case.tensors} <= {"recorded", "exact"}
    assert any("expected" in reason for reason in finding.reasons)


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("kind", ["cpu", "float64", "decomposition"])
def test_a_substitute_undoes_a_wrong_kernel(kind: str) -> None:
    healthy = vision(1)
    entry = CATALOGUE["group-norm-tile"]
    with entry.installed():
        wrong = vision(1)
        with opscope.substitute("aten::native_group_norm*", to=kind) as substituted:
            right = vision(1)
    assert wrong != healthy
    assert right == pytest.approx(healthy, rel=1e-6)
    assert substituted.calls == {
        "aten::native_group_norm.default": 1,
        "aten::native_group_norm_backward.default": 1,
    }
    assert substituted.refused == {}


@pytest.mark.usefixtures("one_process")
def test_the_step_of_a_verdict_is_kept_however_old_it_grows(tmp_path: Path) -> None:
    with (
        CATALOGUE["nll-loss-backward-scale"].installed(),
        opscope.record(tmp_path / "run", check=True, keep="last:1", budget="0%"),
    ):
        scores(12)
    findings = opscope.scan(opscope.open_run(tmp_path / "run")).findings
    assert [(finding.op, finding.step) for finding in findings] == [
        ("aten::nll_loss_backward.default", 0)
    ]


@pytest.mark.usefixtures("one_process")
def test_scratch_memory_of_a_recurrent_kernel_is_no_result(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with opscope.record(tmp_path / "run", check=True):
        for _ in range(3):
            torch.nn.LSTM(5, 7, batch_first=True)(torch.randn(2, 4, 5))[0].sum().backward()
    run = opscope.open_run(tmp_path / "run")
    assert opscope.scan(run).verdict == "clean"
    assert run.processes[0].checked["unjudged"] == {}
