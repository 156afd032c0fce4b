# SPDX-License-Identifier: Apache-2.0
"""An AI Core error of a recorded program: the case has the shapes, types, values and arguments of
the call that launched the kernel.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.ascend.analysis import Analysis, analyse_all
from opscope.ascend.case import write
from opscope.ascend.find import collect
from opscope.ascend.log import read_logs
from opscope.cli import main
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import ValueRef
from opscope.scan.kernel_calls import with_calls
from tests.questions.builder import Builder, state

from .aicore_case import collection
from .aicore_logs import classic, failed
from .conftest import part

PID = 4711  # of the logs
NAME = "L2Loss_" + "c0c615ce" * 4 + "_1"
ERROR = "RuntimeError: NPU function error: aclrtSynchronizeStream, error code is 507015"
ARGS = (
    '{"args":[{"tensor":"0"},{"tensor":"1"},-1,[2,{"float":"inf"}],{"dtype":"float16"}],'
    '"kwargs":{"half":false}}'
)
GIVEN = {"dtype": "float32", "device": "npu:0"}


def run_of(
    *, op: str = "demo::l2_loss.default", pid: int = PID, sync: bool = True, kept: bool = True
) -> Any:
    """A program that died in this operator of two inputs, whose first one was kept."""
    rows = Builder()
    inputs = [
        state(
            1, **GIVEN, shape=(2, 3), value=ValueRef(shard="kept", key="first") if kept else None
        ),
        state(2, **GIVEN, shape=()),
    ]
    outputs = [] if sync else [state(3, **GIVEN, shape=())]
    where = {"name": "head:l2_loss#1", "source": "/train.py:12", "args": ARGS}
    if sync:
        rows.call(op, inputs, outputs, error=ERROR, **where)
    else:
        for _ in range(2):
            rows.call(op, inputs, outputs, **where)
        told = f"{ERROR}\n{failed(1, NAME)}"
        rows.call("_local_scalar_dense", [state(3, **GIVEN)], [], error=told)
    rows.ends(0, exit_code=1, pid=pid)
    return MemoryRun(
        RunInfo(path="rows", format="test", config={"sync": sync}),
        rows.processes.values(),
        rows.calls,
        rows.tensors,
        value=lambda _: np.arange(6, dtype=np.float32).reshape(2, 3),
    )


def analysed(place: Path, run: Any) -> Analysis:
    found = collect([place])
    (one,) = with_calls(analyse_all(read_logs(found.logs), found), run)
    return one


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    """Logs that name the kernel, and nothing of its arguments, as of an eager program."""
    log = tmp_path / "log" / f"plog-{PID}_1.log"
    log.parent.mkdir()
    log.write_text(classic(1.0) + failed(1.1, NAME))
    return log.parent


def test_the_case_is_filled_in(logged: Path, tmp_path: Path) -> None:
    one = analysed(logged, run_of())
    assert one.call is not None
    assert one.call.text == (
        "demo::l2_loss.default(float32[2, 3], float32[], -1, [2, inf], float16, half=False)  "
        "/train.py:12"
    )
    case = write(one, tmp_path / "case")
    text = (tmp_path / "case" / "main.py").read_text()
    assert '"shape": (2, 3), "dtype": "float32", "format": "ND", "ori_shape": (2, 3)' in text
    assert '"value": str(HERE / "inputs/input.0.npy")' in text
    assert f"# Called as {one.call.text}" in text
    values = np.load(tmp_path / "case" / "inputs" / "input.0.npy")
    assert values.tolist() == [[0, 1, 2], [3, 4, 5]]
    record = json.loads((tmp_path / "case" / "case.json").read_text())
    assert record["call"]["args"] == json.loads(ARGS)
    lacks = "\n".join(case.lacks)
    assert "order of the PyTorch call" in lacks
    assert "values of input 1" in lacks
    assert "opscope run --sync --journal demo::l2_loss.default -- CMD keeps them" in lacks
    assert "certainty" not in lacks
    assert "outputs: the call raised before it had any" in lacks
    assert "opscope repro rows 'head:l2_loss#1'" in (tmp_path / "case" / "README.md").read_text()


def test_without_a_call_there_is_no_main(logged: Path, tmp_path: Path) -> None:
    for other in (run_of(op="aten::mm.default"), run_of(pid=PID + 1)):
        one = analysed(logged, other)
        assert one.call is None
        assert not one.tensors
    rows = Builder()
    rows.call("demo::l2_loss.default", [state(1, **GIVEN)], [state(2, **GIVEN)])
    assert analysed(logged, rows.run()).call is None, "the program did not die"


def test_one_of_several_is_said(logged: Path, tmp_path: Path) -> None:
    one = analysed(logged, run_of(sync=False))
    assert one.call is not None
    assert not one.call.certain
    lacks = "\n".join(write(one, tmp_path / "c").lacks)
    assert "certainty: head:l2_loss#1 is the first" in lacks
    assert "outputs: " not in lacks
    assert [tensor.io for tensor in one.tensors] == ["input", "input", "output"]


def test_what_the_device_says_counts_more(tmp_path: Path) -> None:
    """The kernel's own description has one input of 62 x 62, which none of the call's is."""
    one = analysed(collection(tmp_path / "c"), run_of())
    assert [tensor.shape for tensor in one.tensors if tensor.io == "input"] == [(62, 62)]
    assert one.call is not None
    assert one.filled is not None
    assert one.filled.given == {}
    assert "order of the PyTorch call" not in "\n".join(write(one, tmp_path / "case").lacks)


PROGRAM = """
import torch

torch.library.define("demo::l2_loss", "(Tensor x, float scale=0.5) -> Tensor")


@torch.library.impl("demo::l2_loss", "CPU")
def l2_loss(x, scale=0.5):
    raise RuntimeError("NPU function error: aclrtSynchronizeStream, error code is 507015")


torch.ops.demo.l2_loss(torch.full((2, 3), 7.0), scale=0.25)
"""


@pytest.mark.zoo
def test_on_the_command_line(
    logged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ["-m", "opscope", "run", "--sync", "-o", "run", "--", sys.executable, "train.py"]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    (process,) = (tmp_path / "run" / "processes").glob("*/process.json")
    (log,) = logged.iterdir()
    log.write_text(log.read_text().replace(str(PID), str(json.loads(process.read_text())["pid"])))
    run, out = tmp_path / "run", tmp_path / "out"
    assert main(["aicore", str(logged), str(run), "-o", str(out), "--json"]) == 1
    told, noted = capsys.readouterr()
    assert "not joined" not in noted
    (finding,) = json.loads(told)["findings"]
    assert finding["source"] == f"{tmp_path / 'train.py'}:12"
    assert part(finding, "call")["text"].startswith("demo::l2_loss.default(float32[2, 3], 0.25)")
    values = np.load(out / "case" / "inputs" / "input.0.npy")
    assert (values.shape, values.min(), values.max()) == ((2, 3), 7, 7)
