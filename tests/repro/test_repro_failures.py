# SPDX-License-Identifier: Apache-2.0
"""Failures other than non-finite outputs: overflow bits, saturation, exceptions, deaths, custom and
random operators.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tests.repro.single_calls import call_row, record, run_of, run_script

import opscope.repro
from opscope.repro.case import Case
from opscope.repro.failure import failure_of
from opscope.run.memory import MemoryRun
from opscope.run.schema import Call


def cut(recorded: tuple[MemoryRun, Call], directory: Path, **changes: Any) -> Case:
    """Write the folder of a recorded call whose row is changed first; returns its case."""
    run, call = recorded
    opscope.repro.write(run, msgspec.structs.replace(call, **changes), directory)
    return opscope.repro.read_case(directory)


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def int8(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int8)


OVERFLOWS = [
    pytest.param(("aten::mul.Tensor", int32(2**31 - 1, 3), int32(3, 3)), 0x10, id="int32"),
    pytest.param(("aten::mul.Scalar", torch.tensor([2**62, 3]), 5), 0x10, id="int64"),
    pytest.param(("aten::add_.Tensor", int8(120, 3), int8(120, 3)), 0x10, id="int8"),
    pytest.param(("aten::neg.default", int32(-(2**31), 3)), 0x8, id="INT_MIN"),
    pytest.param(("aten::sum.default", torch.tensor([2**62, 2**62, 5])), 0x10, id="sum"),
]


@pytest.mark.parametrize(("call", "status"), OVERFLOWS)
def test_integer_overflow_shows_against_wider_arithmetic(
    call: Any, status: int, tmp_path: Path
) -> None:
    case = cut(record(*call), tmp_path / "case", status=status)
    assert (case.failure.kind, case.failure.status) == ("integer-overflow", hex(status))
    code, document = run_script(tmp_path / "case")
    assert (code, document["verdict"]) == (1, "reproduced")
    assert "1 of " in document["reason"], "only the element that overflows is counted"


def test_negative_to_unsigned_shows(tmp_path: Path) -> None:
    cut(
        record("aten::_to_copy.default", torch.tensor([-3.0, 2.0]), dtype=torch.uint8),
        tmp_path / "case",
        status=0x80,
    )
    code, document = run_script(tmp_path / "case")
    assert (code, document["reason"]) == (1, "1 of 2 true results of output 0 do not fit uint8")


@pytest.mark.parametrize("values", [[2**63 - 1, 0], [-(2**63), 1]])
def test_the_last_int64_is_not_accused(values: list[int], tmp_path: Path) -> None:
    cut(record("aten::add.Scalar", torch.tensor(values), 0), tmp_path / "case", status=0x10)
    code, document = run_script(tmp_path / "case")
    assert (code, document["verdict"]) == (0, "not reproduced")


def test_overflow_without_wider_arithmetic_is_judged_by_the_recorded_output(tmp_path: Path) -> None:
    cut(
        record("aten::__lshift__.Scalar", torch.tensor([2**62, 1]), 3),
        tmp_path / "case",
        status=0x10,
    )
    code, document = run_script(tmp_path / "case")
    assert code == 1
    assert "no wider arithmetic for this operator" in document["reason"]


def test_wider_type_avoids_an_integer_overflow(tmp_path: Path) -> None:
    cut(record("aten::mul.Scalar", int32(2**31 - 1), 3), tmp_path / "case", status=0x10)
    assert run_script(tmp_path / "case", "--dtype", "int64")[0] == 0


def saturated() -> tuple[MemoryRun, Call]:
    """A device that cuts a product off at 65504 instead of giving inf: what the recorder would have
    seen of it.
    """
    run, call = record("aten::mul.Scalar", torch.tensor([6e4, 1.0], dtype=torch.float16), 2.0)
    rows = [
        msgspec.structs.replace(row, pos_inf=0, max=65504.0, value=None)
        if row.io == "output"
        else row
        for row in run.rows("tensors")
    ]
    return run_of(
        rows, {(row.io, row.slot): run.value(row) for row in rows if row.io == "input"}, call
    )


def test_saturation_is_judged_by_the_true_result(tmp_path: Path) -> None:
    assert cut(saturated(), tmp_path / "case").failure.kind == "saturation"
    assert (
        run_script(tmp_path / "case")[1]["reason"]
        == "1 of 2 true results of output 0 do not fit float16"
    )


def test_a_mask_of_the_lowest_float16_is_not_saturation() -> None:
    mask = torch.tensor([True, False])
    run, call = record(
        "aten::masked_fill.Scalar", torch.ones(2, dtype=torch.float16), mask, -65504.0
    )
    rows = run.rows("tensors")
    inputs, outputs = (
        [row for row in rows if row.io == "input"],
        [row for row in rows if row.io == "output"],
    )
    assert failure_of(call, inputs, outputs, [-65504.0]).kind == "none"
    assert failure_of(call, inputs, outputs, []).kind == "saturation"


def test_exception_is_matched_by_class_and_text(tmp_path: Path) -> None:
    recorded = record("aten::mm.default", torch.ones(2, 3), torch.ones(4, 5))
    assert cut(recorded, tmp_path / "same").failure.kind == "exception"
    code, document = run_script(tmp_path / "same")
    assert (code, document["verdict"]) == (1, "reproduced")
    assert document["reason"].startswith(
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"
    )
    cut(
        recorded,
        tmp_path / "numbers",
        error="RuntimeError: mat1 and mat2 shapes cannot be multiplied (20x30 and 40x50)",
    )
    assert run_script(tmp_path / "numbers")[0] == 1
    cut(
        recorded,
        tmp_path / "other",
        error="RuntimeError: CUDA error: an illegal memory access was encountered",
    )
    code, document = run_script(tmp_path / "other")
    assert (code, document["reason"][:13]) == (0, "another error")
    cut(
        recorded,
        tmp_path / "class",
        error="IndexError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
    )
    assert run_script(tmp_path / "class")[0] == 0


def test_call_that_raises_here_only_cannot_be_judged(tmp_path: Path) -> None:
    run, call = record("aten::log.default", torch.tensor([0.0]))
    opscope.repro.write(
        run, msgspec.structs.replace(call, op="aten::linalg_inv.default"), tmp_path / "case"
    )
    code, document = run_script(tmp_path / "case")
    assert (code, document["verdict"]) == (125, "cannot be tried")
    assert "the call raised" in document["reason"]


def test_healthy_call_is_not_reproduced(tmp_path: Path) -> None:
    assert (
        cut(record("aten::log.default", torch.tensor([1.0, 2.0])), tmp_path / "case").failure.kind
        == "none"
    )
    code, document = run_script(tmp_path / "case")
    assert (code, document["reason"]) == (0, "nothing wrong was recorded")
    assert any("bit for bit" in line for line in document["lines"])


def test_an_output_that_differs_says_how_far(tmp_path: Path) -> None:
    run, call = record("aten::log.default", torch.tensor([0.0, 2.0]))
    run.rows("tensors")
    values = {(row.io, row.slot): run.value(row) for row in run.rows("tensors")}
    values["output", "0"] = values["output", "0"] + 0.5
    changed = run_of(run.rows("tensors"), values, call)
    cut(changed, tmp_path / "case")
    assert any(
        "finite elements at most 0.5 from the recorded ones" in line
        for line in run_script(tmp_path / "case")[1]["lines"]
    )


def test_another_class_of_non_finite_values_is_another_failure(tmp_path: Path) -> None:
    run, call = record("aten::log.default", torch.tensor([-1.0]))
    cut(
        (run, call),
        tmp_path / "case",
        op="aten::exp.default",
        args='{"args": [{"tensor": "0"}], "kwargs": {}}',
    )
    assert run_script(tmp_path / "case")[0] == 0
    cut(
        (run, call),
        tmp_path / "other",
        args='{"args": [{"tensor": "0"}], "kwargs": {}}',
        op="aten::log10.default",
    )
    assert run_script(tmp_path / "other")[0] == 1


def test_a_masked_output_beside_a_failing_one_does_not_decide() -> None:
    run, call = record("aten::_foreach_log.default", [torch.tensor([0.0]), torch.tensor([-1.0])])
    outputs = [row for row in run.rows("tensors") if row.io == "output"]
    assert failure_of(call, (), outputs, ()).outputs == {"1": ("nan",)}
    assert failure_of(call, (), outputs[:1], ()).outputs == {"0": ("neg_inf",)}


CUSTOM = """
import os
import torch
library = torch.library.Library("opscope_repro_test", "DEF")
library.define("halve(Tensor x, int times=1) -> Tensor")
library.define("die(Tensor x) -> Tensor")
library.define("sometimes(Tensor x) -> Tensor")
calls = []

def halve(x, times=1):
    return x / 2 ** times + float("nan")

def die(x):
    os.abort()

def sometimes(x):
    calls.append(1)
    return x + float("nan") if len(calls) % 2 else x

library.impl("halve", halve, "CPU")
library.impl("die", die, "CPU")
library.impl("sometimes", sometimes, "CPU")
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "my_operators.py"
    path.write_text(CUSTOM)
    return path


def custom(name: str, error: str | None = None) -> tuple[MemoryRun, Call]:
    run, _ = record("aten::neg.default", torch.ones(3))
    kept = [row for row in run.rows("tensors") if row.io == "input" or not error]
    rows = [msgspec.structs.replace(row, nan=3) if row.io == "output" else row for row in kept]
    args = {"args": [{"tensor": "0"}], "kwargs": {}}
    values = {(row.io, row.slot): run.value(row) for row in rows}
    return run_of(rows, values, call_row(f"opscope_repro_test::{name}.default", args, error=error))


@pytest.mark.zoo
def test_custom_operator_needs_its_library(library: Path, tmp_path: Path) -> None:
    cut(custom("halve"), tmp_path / "case")
    missing = opscope.repro.execute(tmp_path / "case")
    assert (missing.status, missing.exit_code) == ("cannot-try", 125)
    assert "--import the module that registers it" in missing.reason
    found = opscope.repro.execute(tmp_path / "case", imports=[str(library)])
    assert (found.status, found.exit_code) == ("reproduced", 1)
    assert "python repro.py --import MODULE" in (tmp_path / "case" / "README.md").read_text()


@pytest.mark.zoo
def test_failure_that_comes_and_goes_is_flaky(library: Path, tmp_path: Path) -> None:
    cut(custom("sometimes"), tmp_path / "case")
    outcome = opscope.repro.execute(tmp_path / "case", imports=[str(library)], repeat=4)
    assert (outcome.status, outcome.shown, outcome.tried, outcome.exit_code) == ("flaky", 2, 4, 1)
    assert outcome.lines[-1].startswith("flaky 2/4: ")


@pytest.mark.zoo
def test_death_of_the_process_is_a_failure_that_shows(library: Path, tmp_path: Path) -> None:
    assert cut(custom("die", error="unfinished"), tmp_path / "case").failure.kind == "crash"
    outcome = opscope.repro.execute(tmp_path / "case", imports=[str(library)], repeat=2)
    assert (outcome.status, outcome.shown, outcome.exit_code) == ("reproduced", 2, 1)
    assert "exit status -6" in outcome.reason
    cut(custom("sometimes", error="unfinished"), tmp_path / "alive")
    assert (
        opscope.repro.execute(tmp_path / "alive", imports=[str(library)]).status == "not-reproduced"
    )


def test_random_operator_says_its_state_was_not_recorded(tmp_path: Path) -> None:
    x = torch.full((64,), math.inf)
    cut(record("aten::native_dropout.default", x, 0.5, True), tmp_path / "case")
    code, document = run_script(tmp_path / "case", "--repeat", "2")
    assert code == 1
    assert any("generator state was not recorded" in line for line in document["lines"])


def test_recorded_generator_state_is_used(tmp_path: Path) -> None:
    torch.manual_seed(99)
    state = torch.get_rng_state()
    run, call = record("aten::bernoulli.p", torch.ones(64), 0.5)
    material = opscope.repro.build(run, call)
    dtype = material.inputs[0].dtype
    entry = msgspec.structs.replace(
        material.inputs[0],
        key="rng.cpu",
        dtype=type(dtype)("uint8", "uint", 8, "uint8", "U8"),
        shape=tuple(state.shape),
        load=state.numpy,
    )
    case = msgspec.structs.replace(
        material.case, random=opscope.repro.case.Randomness(states={"cpu": "rng.cpu"})
    )
    opscope.repro.save(
        opscope.repro.Material(case, (*material.inputs, entry), material.expected),
        tmp_path / "case",
    )
    with torch.random.fork_rng():
        lines = run_script(tmp_path / "case")[1]["lines"]
    assert any("bit for bit the recorded output" in line for line in lines), lines


def test_generator_argument_and_keyword_names_of_python(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        cut(
            record(
                "aten::random_.from",
                torch.zeros(3, dtype=torch.int64),
                2,
                5,
                generator=torch.Generator(),
            ),
            tmp_path / "case",
        )
        assert run_script(tmp_path / "case")[0] == 0
    assert 'generator=generator("cpu")' in (tmp_path / "case" / "repro.py").read_text()
