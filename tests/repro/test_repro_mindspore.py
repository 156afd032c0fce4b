# SPDX-License-Identifier: Apache-2.0
"""Primitives of MindSpore as cases: which calls are of this form, what the folder holds, what is
refused. No MindSpore needed.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from opscope.errors import UsageError
from opscope.repro import read_case, write
from opscope.repro.form_mindspore import completed
from opscope.repro.forms import form_of
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Process, Tensor, ValueRef

VALUES = {
    "0": np.full((2, 3), 4.0, np.float16),
    "1": np.array(30000, np.float16),
    "out": np.full((2, 3), np.inf, np.float16),
}


def a_run(
    op: str = "Mul",
    *,
    format: str = "mindspore",  # noqa: A002
    args: str | None = None,
    **call: Any,
) -> MemoryRun:
    tree = {
        "args": [{"tensor": "0"}, {"tensor": "1"}],
        "kwargs": {"transpose_a": False, "IsFeatureMapOutput": True},
    }
    made = Call(
        process=0,
        rank=0,
        step=0,
        index=0,
        level="operator",
        phase="forward",
        op=op,
        module="net.fc",
        name=f"Default/{op}-op0",
        source="net.py:32",
        args=json.dumps(tree) if args is None else args,
        **call,
    )
    rows = [
        Tensor(
            process=0,
            index=0,
            io=io,
            slot=slot,
            dtype="float16",
            shape=VALUES[key].shape,
            size=VALUES[key].size,
            nan=0,
            pos_inf=int(np.isinf(VALUES[key]).sum()),
            neg_inf=0,
            value=ValueRef("x", key),
        )
        for io, slot, key in (("input", "0", "0"), ("input", "1", "1"), ("output", "0", "out"))
    ]
    return MemoryRun(
        RunInfo(path="run", format=format),
        [Process(process=0, directory="")],
        [made],
        rows,
        value=lambda row: VALUES[row.value.key],
    )  # type: ignore[union-attr]


def the_call(run: MemoryRun) -> Call:
    found: Call = run.rows("calls")[0]
    return found


def test_a_kernel_becomes_a_folder(tmp_path: Path) -> None:
    run = a_run()
    write(run, the_call(run), tmp_path / "case")
    case = read_case(tmp_path / "case")
    assert (case.form, case.op, case.failure.kind) == ("mindspore", "Mul", "nonfinite")
    text = (tmp_path / "case/repro.py").read_text(encoding="utf-8")
    assert 'OPERATOR = "Mul"' in text.replace("'", '"')
    assert "opscope" not in {
        node.module or "" for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)
    }
    assert "mindspore and numpy" in (tmp_path / "case/README.md").read_text(encoding="utf-8")
    assert "ops.Mul(transpose_a=False)" in (tmp_path / "case/README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("op", "format", "form"),
    [
        ("Mul", "mindspore", "mindspore"),
        ("Mul", "opscope", "mindspore"),
        ("aten::mul.Tensor", "opscope", "torch"),
        ("Mul", "cann", None),
    ],
)
def test_which_form_takes_a_call(op: str, format: str, form: str | None) -> None:  # noqa: A002
    run = a_run(op, format=format)
    found = form_of(run, the_call(run)).name
    assert found == form if form else found != "mindspore"


@pytest.mark.parametrize("op", ["Mul; import os", "mul", "Mul\n", "__import__", "M" * 200])
def test_names_that_are_no_primitive_never_become_code(op: str, tmp_path: Path) -> None:
    run = a_run(op)
    with pytest.raises(UsageError):
        write(run, the_call(run), tmp_path / "case")
    assert not (tmp_path / "case").exists()


def test_a_kernel_without_arguments_says_what_to_do(tmp_path: Path) -> None:
    run = a_run()
    (call,) = run.rows("calls")
    bare = msgspec.structs.replace(call, args=None)
    with pytest.raises(UsageError, match="save_kernel_args"):
        write(run, bare, tmp_path / "case")


def test_without_mindspore_it_cannot_be_tried(tmp_path: Path) -> None:
    run = a_run()
    write(run, the_call(run), tmp_path / "case")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "case/repro.py")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 125
    assert "install mindspore" in done.stderr


@pytest.mark.parametrize(
    ("op", "told"), [("UnsortedSegmentSum", 2), ("Conv2DBackpropFilter", [2, 3]), ("Mul", None)]
)
def test_an_operand_that_the_output_tells(op: str, told: Any) -> None:
    """MindSpore dumps no file for the shape a gradient is to have; where nothing tells it the case
    is refused as before.
    """
    tree = {"args": [{"tensor": "0"}, {"tensor": "1"}, {"tensor": "2"}], "kwargs": {}}
    run = a_run(op, args=json.dumps(tree))
    found = json.loads(completed(run, the_call(run)).args or "")
    assert found["args"][2] == ({"tensor": "2"} if told is None else told)
