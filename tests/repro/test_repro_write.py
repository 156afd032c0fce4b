# SPDX-License-Identifier: Apache-2.0
"""The folder as a whole: what is in it, what is refused, that nothing half-written stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tests.repro.single_calls import call_row, record, run_of

import opscope.repro
from opscope.errors import FormatError, MissingValueError, UsageError
from opscope.repro.readme import tensor_line
from opscope.repro.tensorfile import Entry, write_tensors
from opscope.run.dtypes import dtype_of
from opscope.run.memory import MemoryRun
from opscope.run.schema import Call, Tensor


def test_files_hold_what_was_recorded(tmp_path: Path) -> None:
    run, call = record(
        "aten::addmm.default",
        torch.ones(2),
        torch.full((2, 3), 300.0).half().float(),
        torch.full((3, 2), 3e38),
        beta=2,
    )
    repro = opscope.repro.write(run, call, tmp_path / "case")
    assert (repro.directory, repro.call, repro.warnings) == (
        str(tmp_path / "case"),
        "blocks.2.attn:addmm#1",
        (),
    )
    assert repro.written == {
        path.name: path.stat().st_size for path in (tmp_path / "case").iterdir()
    }
    inputs, expected = (
        load_file(tmp_path / "case" / "inputs.safetensors"),
        load_file(tmp_path / "case" / "expected.safetensors"),
    )
    assert {key: list(value.shape) for key, value in inputs.items()} == {
        "0": [2],
        "1": [2, 3],
        "2": [3, 2],
    }
    assert torch.equal(inputs["1"], torch.full((2, 3), 300.0))
    assert torch.equal(expected["0"], torch.full((2, 2), torch.inf))
    case = opscope.repro.read_case(tmp_path / "case")
    assert case == opscope.repro.build(run, call).case
    assert (case.op, case.module, case.source, case.step) == (
        "aten::addmm.default",
        "blocks.2.attn",
        "/home/someone/train.py:41",
        3,
    )
    assert case.failure.outputs == {"0": ("pos_inf",)}
    assert case.args["kwargs"] == {"beta": 2}
    readme = (tmp_path / "case" / "README.md").read_text(encoding="utf-8")
    for said in (
        "blocks.2.attn:addmm#1",
        "train.py:41",
        "f32[2, 2] 4 inf",
        "python repro.py",
        "inf in output 0",
        torch.__version__,
    ):
        assert said in readme


def test_expected_outputs_are_left_out_when_they_were_not_kept(tmp_path: Path) -> None:
    run, call = record("aten::log.default", torch.tensor([0.0]))
    rows = [
        msgspec.structs.replace(row, value=None) if row.io == "output" else row
        for row in run.rows("tensors")
    ]
    repro = opscope.repro.write(
        *run_of(rows, {("input", "0"): np.zeros(1, np.float32)}, call), tmp_path / "case"
    )
    assert "expected.safetensors" not in repro.written
    assert opscope.repro.execute(tmp_path / "case").status == "reproduced"


@pytest.mark.parametrize(
    "dtype",
    [
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        np.float64,
        np.int8,
        np.bool_,
    ],
)
def test_safetensors_reads_the_true_type(dtype: Any, tmp_path: Path) -> None:
    array = np.array([[1, 0, 2]]).astype(dtype)
    known = dtype_of(array.dtype.name)
    write_tensors(tmp_path / "x", [Entry(key="a", dtype=known, shape=(1, 3), load=lambda: array)])
    found = load_file(tmp_path / "x")["a"]
    assert (str(found.dtype), found.to(torch.float64).tolist()) == (
        known.torch,
        [[1.0, float(known.name != "bool") * 0.0, float(array[0, 2])]],
    )


@pytest.mark.parametrize(
    "dtype",
    [np.complex128, np.complex64, np.uint64, ml_dtypes.float8_e8m0fnu, ml_dtypes.float8_e4m3fnuz],
)
def test_types_that_safetensors_lacks_are_bytes(dtype: Any, tmp_path: Path) -> None:
    array = np.array([[1, 2]]).astype(dtype)
    write_tensors(
        tmp_path / "x",
        [Entry(key="a", dtype=dtype_of(array.dtype.name), shape=(1, 2), load=lambda: array)],
    )
    with safe_open(tmp_path / "x", "np") as file:
        assert file.get_tensor("a").tobytes() == array.tobytes()


def test_no_tensors_and_empty_tensors_are_files_too(tmp_path: Path) -> None:
    write_tensors(tmp_path / "none", [])
    assert load_file(tmp_path / "none") == {}
    empty = Entry(
        key="a", dtype=dtype_of("int64"), shape=(0, 3), load=lambda: np.empty((0, 3), np.int64)
    )
    scalar = Entry(key="b", dtype=dtype_of("bool"), shape=(), load=lambda: np.array(True))
    write_tensors(tmp_path / "x", [empty, scalar])
    found = load_file(tmp_path / "x")
    assert (list(found["a"].shape), bool(found["b"])) == ([0, 3], True)


def test_a_value_of_another_shape_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    run, call = record("aten::log.default", torch.tensor([0.0, 1.0]))
    broken = run_of(
        run.rows("tensors"),
        {("input", "0"): np.zeros(3, np.float32), ("output", "0"): np.zeros(2, np.float32)},
        call,
    )
    with pytest.raises(MissingValueError, match="the run holds shape"):
        opscope.repro.write(*broken, tmp_path / "case")
    wrong = run_of(
        run.rows("tensors"),
        {
            ("input", "0"): np.array([0.0, 1.0], np.float64),
            ("output", "0"): np.zeros(2, np.float32),
        },
        call,
    )
    with pytest.raises(FormatError, match="float32"):
        opscope.repro.write(*wrong, tmp_path / "case")
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    run, call = record("aten::log.default", torch.tensor([0.0]))
    (tmp_path / "empty").mkdir()
    opscope.repro.write(run, call, tmp_path / "empty")
    before = {path.name: path.read_bytes() for path in (tmp_path / "empty").iterdir()}
    with pytest.raises(UsageError, match="exists and is not an empty directory"):
        opscope.repro.write(run, call, tmp_path / "empty")
    assert {path.name: path.read_bytes() for path in (tmp_path / "empty").iterdir()} == before
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="exists"):
        opscope.repro.write(run, call, tmp_path / "file")
    with pytest.raises(UsageError, match="cannot be made"):
        opscope.repro.write(run, call, tmp_path / "file" / "below")
    opscope.repro.write(run, call, tmp_path / "a" / "b" / "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "empty", "file"]


def without_rows(io: str) -> tuple[MemoryRun, Call]:
    run, call = record("aten::log.default", torch.tensor([0.0]))
    return run_of(
        [row for row in run.rows("tensors") if row.io != io],
        {("output", "0"): np.zeros(1, np.float32)},
        call,
    )


def test_calls_that_cannot_be_made_again_say_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="its input 0 was not recorded"):
        opscope.repro.write(*without_rows("input"), tmp_path / "case")
    run, call = record("aten::log.default", torch.tensor([0.0]))
    with pytest.raises(UsageError, match="needs a process group"):
        opscope.repro.write(
            run, msgspec.structs.replace(call, op="c10d::allreduce_.default"), tmp_path / "case"
        )
    with pytest.raises(UsageError, match="its arguments were not recorded"):
        opscope.repro.write(run, msgspec.structs.replace(call, args=None), tmp_path / "case")


def test_a_module_call_names_the_operators_inside(tmp_path: Path) -> None:
    run, call = record("aten::log.default", torch.tensor([0.0]))
    outer = msgspec.structs.replace(
        call, index=6, level="module", op="torch.nn.Linear", name="<root>:Linear#1"
    )
    inner = msgspec.structs.replace(call, parent=6)
    nested = MemoryRun(run.info, (), [outer, inner], run.rows("tensors"))
    with pytest.raises(
        UsageError,
        match=r"level module; only single operators can be cut out: try 'blocks.2.attn:log#1'",
    ):
        opscope.repro.write(nested, outer, tmp_path / "case")


def test_call_without_tensors(tmp_path: Path) -> None:
    run, call = run_of(
        [],
        {},
        call_row(
            "aten::scalar_tensor.default",
            {"args": [{"float": "nan"}], "kwargs": {"dtype": {"dtype": "float32"}}},
        ),
    )
    opscope.repro.write(run, call, tmp_path / "case")
    assert opscope.repro.execute(tmp_path / "case").status == "not-reproduced"


def test_packages_are_told_and_other_peoples_secrets_are_not(tmp_path: Path) -> None:
    run, call = record("aten::log.default", torch.tensor([0.0]))
    rows, values = (
        run.rows("tensors"),
        {(row.io, row.slot): run.value(row) for row in run.rows("tensors")},
    )
    variables = {
        "TORCH_LOGS": "x",
        "CUDA_LAUNCH_BLOCKING": "1",
        "ASCEND_RT_VISIBLE_DEVICES": "0",
        "MY_PASSWORD": "secret",
        "HOME": "/h",
    }
    told = run_of(rows, values, call, environment=variables, seed=3, deterministic=True)
    opscope.repro.write(*told, tmp_path / "case")
    text = (tmp_path / "case" / "case.json").read_text() + (
        tmp_path / "case" / "README.md"
    ).read_text()
    assert "secret" not in text
    assert (
        "/h"
        not in json.loads((tmp_path / "case" / "case.json").read_text())["environment"][
            "variables"
        ].values()
    )
    assert all(
        name in text for name in ("TORCH_LOGS", "CUDA_LAUNCH_BLOCKING", "ASCEND_RT_VISIBLE_DEVICES")
    )
    assert opscope.repro.read_case(tmp_path / "case").flags == {"deterministic": True}


def test_private_formats_and_unsound_inputs_are_said(tmp_path: Path) -> None:
    run, call = record("aten::add.Tensor", torch.tensor([torch.inf]), torch.tensor([1.0]))
    values = {(row.io, row.slot): run.value(row) for row in run.rows("tensors")}
    rows: list[Tensor] = [
        msgspec.structs.replace(row, layout="FRACTAL_NZ") if row.slot == "1" else row
        for row in run.rows("tensors")
    ]
    warnings = opscope.repro.write(*run_of(rows, values, call), tmp_path / "case").warnings
    assert warnings == (
        "input 0 held NaN or inf already: this call may only pass them on",
        (
            "conditions differ: input 1 had a private device format; an NPU casts it back, "
            "elsewhere it is strided"
        ),
    )


def test_strides_that_were_not_recorded_are_said(tmp_path: Path) -> None:
    run, call = record("aten::mm.default", torch.ones(2, 3), torch.ones(3, 1))
    values = {(row.io, row.slot): run.value(row) for row in run.rows("tensors")}
    rows: list[Tensor] = [
        msgspec.structs.replace(row, stride=None, storage=None) for row in run.rows("tensors")
    ]
    warnings = opscope.repro.write(*run_of(rows, values, call), tmp_path / "case").warnings
    assert warnings == (
        "conditions differ: strides of input 0 were not recorded; here C order is taken",
    )
    assert opscope.repro.write(run, call, tmp_path / "known").warnings == ()
    assert any(warnings[0] in line for line in opscope.repro.execute(tmp_path / "case").lines)


def test_one_line_of_a_tensor() -> None:
    assert (
        tensor_line("float16", (32, 64), {"min": -310.0, "max": 298.25, "pos_inf": 37, "nan": 0})
        == "f16[32, 64] x∈[-310, 298] 37 inf"
    )
    assert tensor_line("bfloat16", (), {"nan": 1}) == "bf16[] 1 NaN"
    assert (
        tensor_line("uint8", (2,), {"min_int": 0, "max_int": 255, "min": 0.0, "max": 255.0})
        == "u8[2] x∈[0, 255]"
    )
    assert tensor_line("float8_e4m3fn", (2,), {}) == "f8e4m3fn[2]"
    assert tensor_line("bool", (1,), {}) == "bool[1]"
