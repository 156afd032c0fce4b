# SPDX-License-Identifier: Apache-2.0
"""A device's error is told of the call whose kernel failed, not of the one that heard of it."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.questions.builder import Builder, unread

from opscope.report.terminal import next_command
from opscope.run.finding import Finding
from opscope.scan.api import scan

HEARD = "RuntimeError: NPU function error: aclrtSynchronizeStream, error code is 507015\n"
FAILED = (
    "Aicore kernel execute failed, device_id=0, stream_id=2, report_stream_id=2, task_id=3, "
    "flip_num=0, fault kernel_name={}, fault kernel info ext=none, program id=1, hash=15.[FUNC:"
    "GetError][FILE:stream.cc][LINE:1078]"
)
SOFTMAX = "SoftmaxV2_5881aeec01e51adb01fb1db8be1c04f0_10000000000022420943"


def on_device(version: int, **changes: Any) -> dict[str, Any]:
    return unread(version, device="npu:0", **changes)


def on_host(version: int) -> dict[str, Any]:
    return unread(version, device="cpu")


def told(error: str, *, softmaxes: int = 1, lines: int = 1, **ends: Any) -> Finding:
    """The first finding of a program whose `item` raises this: it had waited for the device once,
    since when there are some softmaxes, on one line or on two, a product, a view and memory.
    """
    rows = Builder()
    rows.call("_softmax", [on_device(1)], [on_device(2)], source="/t.py:1")
    rows.call("_local_scalar_dense", [on_device(2)], [], source="/t.py:2")
    for number in range(softmaxes):
        line = 3 + number % lines
        rows.call("_softmax", [on_device(1)], [on_device(3)], source=f"/t.py:{line}")
    rows.call("mm", [on_device(3), on_device(1)], [on_device(4)], source="/t.py:5")
    rows.call("view", [on_device(4)], [on_device(4)], source="/t.py:6")
    rows.call("empty", [], [on_device(5)], source="/t.py:6")
    rows.call("randn", [], [on_host(6)], source="/t.py:6")
    rows.step = 1  # a loss is read once the optimizer has ended its step
    last = rows.call("_local_scalar_dense", [on_device(4)], [], source="/t.py:7", error=error)
    rows.ends(0, exit_code=1, **{"host": "elsewhere", "pid": 7, "start": 1.0, **ends})
    (found,) = scan(rows.run()).findings
    assert found.kind == "crash"
    assert found.index is not None
    assert found.index <= last
    return found


@pytest.mark.parametrize(
    "said",
    [
        f"EZ9999: Inner Error!\n{FAILED.format(SOFTMAX)}",
        "EZ9999: there is an aicore error exception, core id is 3, kernel name=aclnnSoftmax",
    ],
)
def test_the_kernel_that_the_error_names(said: str) -> None:
    finding = told(HEARD + said)
    assert (finding.op, finding.source) == ("aten::_softmax.default", "/t.py:3")
    assert finding.confidence == "likely"
    assert "names the kernel Softmax" in finding.reasons[1]
    assert "of 2 calls launched" in finding.reasons[1]
    command = "opscope run --sync --journal aten::_softmax.default -- CMD"
    assert next_command(finding, "run") == command


def test_what_the_driver_told_the_recorder_alone() -> None:
    finding = told(HEARD, torch={"device errors": {"npu:0": HEARD + FAILED.format(SOFTMAX)}})
    assert (finding.op, finding.confidence) == ("aten::_softmax.default", "likely")


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        ("ForeachAddScalar", "aten::_foreach_add_.Scalar"),
        ("ForeachAddcmulScalarListV2", "aten::_foreach_addcmul_.Scalar"),
        ("LayerNormGradV3", "aten::native_layer_norm_backward.default"),
        ("ApplyAdamWV2", "aten::_fused_adamw_.default"),
        ("MatMulV3", "aten::addmm.default"),
        ("FlashAttentionScore", "npu::npu_fusion_attention.default"),
        ("Cast", "aten::_to_copy.default"),
        ("AddCustom", "mine::add_custom.default"),
    ],
)
def test_kernels_and_the_operators_that_launch_them(kernel: str, op: str) -> None:
    rows = Builder()
    rows.call(op, [on_device(1)], [on_device(2)], source="/t.py:1")
    rows.call("neg", [on_device(2)], [on_device(3)], source="/t.py:2")
    error = HEARD + FAILED.format(f"{kernel}_{'a' * 32}_1")
    rows.call("_local_scalar_dense", [on_device(3)], [], source="/t.py:3", error=error)
    rows.ends(0, exit_code=1)
    (found,) = scan(rows.run()).findings
    assert (found.op, found.confidence) == (op, "likely")


def test_several_calls_of_one_line_are_one_place() -> None:
    finding = told(HEARD + FAILED.format(SOFTMAX), softmaxes=3)
    assert (finding.source, finding.confidence) == ("/t.py:3", "likely")
    assert "3 are such an operator" in finding.reasons[1]


def test_several_lines_are_only_suspected() -> None:
    finding = told(HEARD + FAILED.format(SOFTMAX), softmaxes=2, lines=2)
    assert finding.confidence == "suspected"
    assert "_softmax (t.py:3), _softmax (t.py:4); record with --sync" in finding.reasons[1]
    assert next_command(finding, "run") == "opscope run --sync -- CMD"


@pytest.mark.parametrize("said", ["", FAILED.format("GatherV2_" + "a" * 32 + "_0")])
def test_without_a_name_the_call_that_heard_of_it_and_what_was_launched(said: str) -> None:
    finding = told(HEARD + said)
    assert (finding.op, finding.source) == ("aten::_local_scalar_dense.default", "/t.py:7")
    assert finding.confidence == "suspected"
    assert "2 calls launched since the last one that waited" in finding.reasons[1]
    assert "_softmax (t.py:3), mm (t.py:5)" in finding.reasons[1]
    assert ("the kernel GatherV2, which none of these is" in finding.reasons[1]) == bool(said)


def test_the_log_that_cann_wrote_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "debug" / "plog" / "plog-7_20261126010203004.log"
    log.parent.mkdir(parents=True)
    head = "[ERROR] RUNTIME(7,python3):2026-11-26-01:02:03.360.397 [stream.cc:1078]7 GetError:"
    log.write_text(f"{head}[EXEC][EXEC]{FAILED.format(SOFTMAX)}\n")
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", str(tmp_path))
    here = socket.gethostname()
    assert told(HEARD, host=here).op == "aten::_softmax.default"
    assert told(HEARD, host=here, pid=8).confidence == "suspected"
    assert told(HEARD).confidence == "suspected", "logs of another machine's process"
    old = log.stat().st_mtime
    assert told(HEARD, host=here, start=old + 60).confidence == "suspected", "an earlier process"
    os.truncate(log, 0)
    assert told(HEARD, host=here).confidence == "suspected"
