# SPDX-License-Identifier: Apache-2.0
"""How a script judges silently wrong results: by a trusted kernel's own error, never by rounding
that any kernel has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.repro.single_calls import record, run_of, run_script

import opscope.repro
from opscope.errors import UsageError
from opscope.repro.case import Failure
from opscope.repro.failure import MEMORY, witness_of
from opscope.repro.scripts.judging import (
    Kept,
    Reference,
    compare,
    judge_error,
    judge_memory,
    judge_mismatch,
    relation,
)
from opscope.repro.scripts.verdict import CannotTry
from opscope.repro.write import cut
from opscope.run.schema import Judgement, Process
from opscope.substitute.examine import CHANGED, COPY, SHARED

CASE: dict[str, Any] = {"failure": {"kind": "mismatch", "outputs": {}}}


@given(
    st.integers(0, 1000),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    st.integers(1, 300),
)
def test_a_healthy_kernel_that_sums_in_another_order_is_right(
    seed: int, dtype: torch.dtype, length: int
) -> None:
    x = torch.randn(4, length, generator=torch.Generator().manual_seed(seed)).to(dtype)
    exact = {"0": x.double().sum(1)}
    plain = {"0": x.sum(1)}
    other = x.flip(1).float().sum(1).to(dtype)
    assert not judge_mismatch(CASE, {"0": other}, Reference(exact, plain, "float64")).shown


@pytest.mark.parametrize(
    ("dtype", "wrong"),
    [
        (torch.float32, 1.001),
        (torch.float16, 1.05),
        (torch.bfloat16, 1.3),
        (torch.float64, 1 + 1e-9),
    ],
)
def test_one_wrong_element_of_many(dtype: torch.dtype, wrong: float) -> None:
    x = torch.linspace(1, 2, 500, dtype=dtype)
    out = x.clone()
    out[77] *= wrong
    found = judge_mismatch(CASE, {"0": out}, Reference({"0": x.double()}, {"0": x}, "float64"))
    assert found.shown
    assert found.told.startswith("1 of 500 elements of output 0 are wrong")
    assert found.grade > 1


def test_an_accumulation_in_the_element_type() -> None:
    x = torch.randn(64, 200, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    exact, plain = x.double().sum(1), x.sum(1)
    narrow = torch.zeros(64, dtype=torch.bfloat16)
    for part in x.unbind(1):
        narrow = narrow + part
    rule = {
        "absolute": 0.0,
        "relative": 2.0**-7,
        "scaled": 1.0,
        "own": "largest",
    }  # lenient: no single element is beyond
    found = compare(narrow, exact, plain, rule)
    assert found is not None
    assert found[1] > 1
    assert "accumulation" in found[2]
    healthy = compare(x.float().sum(1).to(torch.bfloat16), exact, plain, rule)
    assert healthy is not None
    assert healthy[0] == 0


def test_values_that_are_not_finite_are_compared_as_masks() -> None:
    inf, nan = float("inf"), float("nan")
    exact = torch.tensor([1e6, 1.0, nan, inf, 2.0], dtype=torch.float64)
    right = torch.tensor([inf, 1.0, nan, inf, 2.0], dtype=torch.float16)
    found = compare(right, exact, None)
    assert found is not None
    assert found[0] == 0, "what the type cannot hold is no error"
    for place, value in ((1, nan), (2, 0.0), (3, -inf), (4, inf)):
        out = right.clone()
        out[place] = value
        found = compare(out, exact, None)
        assert found is not None
        assert found[0] == 1, (place, value)


def test_positions_are_judged_only_by_a_kernel_in_the_same_types() -> None:
    index = torch.tensor([1, 2])
    assert compare(index, torch.tensor([1.0, 0.0], dtype=torch.float64), None) is None
    found = compare(index, torch.tensor([1, 0]), torch.tensor([1, 0]))
    assert found is not None
    assert found[0] == 1
    shape = compare(torch.ones(2), torch.ones(3, dtype=torch.float64), None)
    assert shape is not None
    assert shape[0] > 0
    with pytest.raises(CannotTry):
        judge_mismatch(CASE, {"0": index}, Reference({}, {}, ""))


def test_what_exact_arithmetic_gives_in_the_same_place() -> None:
    out = torch.tensor([float("inf"), 1.0], dtype=torch.float16)
    assert relation(torch.tensor([1e6, 1.0], dtype=torch.float64), out) == "beyond"
    assert relation(torch.tensor([10.0, 1.0], dtype=torch.float64), out) == "finite"
    assert relation(torch.tensor([float("inf"), 1.0], dtype=torch.float64), out) == "non-finite"
    assert relation(None, out) == "unknown"


def test_a_kernel_of_torch_itself_is_judged_by_its_decomposition(tmp_path: Path) -> None:
    run, call = record("aten::silu.default", torch.linspace(-3, 3, 64))
    material = opscope.repro.build(run, call)
    case = msgspec.structs.replace(
        material.case, failure=Failure(kind="mismatch", outputs={"0": ()})
    )
    opscope.repro.save(msgspec.structs.replace(material, case=case), tmp_path / "case")
    code, document = run_script(tmp_path / "case")
    assert (code, document["reason"]) == (
        0,
        "the outputs are right, by PyTorch's decomposition in float64",
    )
    assert any("needs the calls before this one" in line for line in document["lines"])


def test_a_check_that_found_a_call_wrong_is_its_failure() -> None:
    run, call = record("aten::relu.default", torch.ones(3))
    judged = Judgement(process=0, index=7, kind="replay-mismatch", sample='{"output": "0"}')
    other = Judgement(process=0, index=8, kind="replay-mismatch")
    for rows, kind in (
        ([judged], "mismatch"),
        ([other], "none"),
        ([msgspec.structs.replace(judged, kind="nondeterminism")], "none"),
    ):
        run._rows["judgements"] = rows  # type: ignore[attr-defined]
        assert opscope.repro.build(run, call).case.failure.kind == kind


def test_a_check_that_found_a_call_wrong_says_more_than_a_result_at_the_end_of_its_type() -> None:
    run, call = record(
        "aten::add.Tensor",
        torch.tensor([65472.0], dtype=torch.float16),
        torch.tensor([32.0], dtype=torch.float16),
    )
    overflown = msgspec.structs.replace(call, status=0x10)
    assert [opscope.repro.build(run, each).case.failure.kind for each in (call, overflown)] == [
        "saturation",
        "integer-overflow",
    ]
    run._rows["judgements"] = [
        Judgement(process=0, index=7, kind="replay-mismatch", sample='{"output": "0"}')
    ]  # type: ignore[attr-defined]
    assert [opscope.repro.build(run, each).case.failure.kind for each in (call, overflown)] == [
        "mismatch",
        "mismatch",
    ]


@pytest.mark.parametrize(
    ("op", "kernel", "told"),
    [
        (
            "relu",
            lambda x: x.clamp_(min=0).clone(),
            "argument 0 was changed, which the operator only reads by its schema",
        ),
        (
            "relu",
            lambda x: x.clamp_(min=0),
            (
                "argument 0 was changed, which the operator only reads by its schema; output 0 "
                "shares memory"
            ),
        ),
        ("relu_", lambda x: x.clamp_(min=0), ""),
        (
            "t",
            lambda x: x.clone().transpose(0, 1),
            "output 0 is a copy, though it is a view of an argument by its schema",
        ),
        ("t", lambda x: x.transpose(0, 1), ""),
        (
            "abs",
            lambda x: x,
            "output 0 shares memory with an argument, though it is new by its schema",
        ),
        ("abs", lambda x: torch.where(x < 0, -x, x), ""),
    ],
)
def test_what_a_call_does_to_memory(
    op: str, kernel: Callable[[torch.Tensor], torch.Tensor], told: str
) -> None:
    tensor = torch.tensor([[-1.0, 2.0, math.nan]])
    before = Kept({"0": tensor})
    found = judge_memory(getattr(torch.ops.aten, op).default, before, {"0": kernel(tensor)})
    assert found.shown is bool(told)
    assert found.told.startswith(told or "arguments and results lie and stay as the schema says")


def test_a_written_argument_among_the_outputs_is_no_result() -> None:
    tensors = {
        str(place): torch.ones(1, 3) if place == 0 else torch.zeros(1 if place else 3)
        for place in range(5)
    }
    before = Kept(tensors)
    results = torch.ops.aten.native_batch_norm(
        tensors["0"][:, :1],
        *(tensors[slot] for slot in "1234"),
        training=True,
        momentum=0.1,
        eps=1e-5,
    )
    outputs = {
        **{str(place): each for place, each in enumerate(results)},
        "3": tensors["3"],
        "4": tensors["4"],
    }
    assert not judge_memory(torch.ops.aten.native_batch_norm.default, before, outputs).shown


def test_a_check_that_found_memory_used_otherwise_is_its_failure(tmp_path: Path) -> None:
    run, call = record("aten::relu.default", torch.ones(3))
    run._rows["judgements"] = [
        Judgement(process=0, index=7, kind="replay-mismatch", sample=json.dumps({"reason": COPY}))
    ]  # type: ignore[attr-defined]
    opscope.repro.write(run, call, tmp_path / "case")
    assert opscope.repro.read_case(tmp_path / "case").failure.kind == "memory"
    code, document = run_script(tmp_path / "case")
    assert (code, document["reason"]) == (
        0,
        "arguments and results lie and stay as the schema says",
    )


def test_a_function_above_kernels_has_the_arguments_that_its_check_told() -> None:
    run, call = record("aten::pow.Tensor_Scalar", torch.ones(3), 2)
    above, sample = (
        msgspec.structs.replace(call, args=None),
        {"args": json.loads(call.args or ""), "gradient": "0"},
    )
    run._rows["judgements"] = [
        Judgement(process=0, index=7, kind="replay-mismatch", sample=json.dumps(sample))
    ]  # type: ignore[attr-defined]
    made = cut(run, above)
    assert (made.case.level, made.case.args) == (
        "api",
        {"args": [{"tensor": "0"}, 2], "kwargs": {}},
    )
    assert made.inputs[-1].load().std() > 0.1, "a drawn gradient, where the sum's would be ones"
    run._rows["judgements"] = [
        Judgement(process=0, index=7, kind="replay-mismatch", sample='{"differences": true}')
    ]  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="gradcheck"):
        opscope.repro.build(run, above)
    run._rows["judgements"] = []  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="not recorded"):
        opscope.repro.build(run, above)


def test_words_of_checks_that_mean_memory() -> None:
    assert all(map(MEMORY.search, (COPY, SHARED, CHANGED)))


def test_a_call_in_which_somebody_stopped_the_process_hangs() -> None:
    run, call = record("aten::relu.default", torch.ones(3))
    call = msgspec.structs.replace(call, error="unfinished")
    for number, kind in ((15, "hang"), (2, "hang"), (6, "crash"), (None, "crash")):
        run, _ = run_of(
            run.rows("tensors"),
            {(row.io, row.slot): run.value(row) for row in run.rows("tensors")},
            call,
        )
        run.processes = (Process(process=0, directory="p", signal=number),)  # type: ignore[misc]
        assert opscope.repro.build(run, call).case.failure.kind == kind


def test_a_witness_decides_where_every_kernel_of_the_machine_is_wrong() -> None:
    witness = {"slot": "0", "element": [1], "recorded": "2.5", "true": "2.0", "tolerance": 0.1}
    case = {"failure": {"kind": "mismatch", "outputs": {}, "witnesses": [witness]}}
    own = Reference({"0": torch.tensor([1.0, 2.5])}, None, "float64 on the CPU")
    for nothing in (own, Reference({}, None, "")):
        found = judge_mismatch(case, {"0": torch.tensor([1.0, 2.5])}, nothing)
        assert (found.shown, found.grade) == (True, pytest.approx(5.0))
        assert "element [1] of output 0 is 2.5, 2.0 in truth" in found.told
    assert not judge_mismatch(case, {"0": torch.tensor([1.0, 2.05])}, Reference({}, None, "")).shown


@pytest.mark.parametrize(
    ("got", "true", "shown"),
    [
        ("inf", "1.0", True),
        ("1.0", "inf", True),
        ("nan", "1.0", True),
        ("inf", "inf", False),
        ("nan", "nan", False),
        ("(1+2j)", "(1+2j)", False),
        ("(1+2j)", "(1+3j)", True),
    ],
)
def test_witnesses_of_every_kind_of_number(got: str, true: str, shown: bool) -> None:
    witness = {"slot": "0", "element": [], "recorded": got, "true": true, "tolerance": None}
    case = {"failure": {"kind": "mismatch", "outputs": {}, "witnesses": [witness]}}
    value = torch.tensor(complex(got) if "j" in got else float(got))
    assert judge_mismatch(case, {"0": value}, Reference({}, None, "")).shown is shown


def test_a_witness_of_another_shape_is_none() -> None:
    witness = {"slot": "0", "element": [3], "recorded": "1", "true": "2", "tolerance": 0.0}
    case = {"failure": {"kind": "mismatch", "outputs": {}, "witnesses": [witness]}}
    for out in (torch.ones(3), torch.ones(2, 2)):
        with pytest.raises(CannotTry):
            judge_mismatch(case, {"0": out}, Reference({}, None, ""))


def test_what_a_check_says_of_an_element() -> None:
    sample = {"output": "written:0.1", "worst": [2], "got": "1.5", "expected": "2.0"}
    found = witness_of(sample, 0.25)
    assert found is not None
    assert (found.slot, found.element, found.true, found.tolerance) == ("0.1", (2,), "2.0", 0.25)
    for other in (
        {"gradient": "0"},
        {"worst": None},
        {"worst": ["0"]},
        {"worst": [-1]},
        {"got": "import os"},
        {"output": "__class__"},
    ):
        assert witness_of({**sample, **other}, 0.25) is None


@pytest.mark.parametrize(
    ("was", "now", "same"),
    [
        ("stream wait, error code is 507015\nEZ9999", "memcpy, error code is 507015", True),
        ("stream wait, error code is 507015", "memcpy, error code is 507011", False),
        (
            "CUDA error: device-side assert triggered",
            "CUDA error: device-side assert triggered\nx",
            True,
        ),
        ("CUDA error: device-side assert triggered", "CUDA error: an illegal memory access", False),
        (
            "mat1 and mat2 cannot be multiplied (2x3)",
            "mat1 and mat2 cannot be multiplied (4x5)",
            True,
        ),
        ("mat1 and mat2 cannot be multiplied", "expected a vector", False),
    ],
)
def test_errors_of_a_device_are_the_same_whoever_waited(was: str, now: str, *, same: bool) -> None:
    case = {"failure": {"kind": "exception", "error": {"type": "RuntimeError", "text": was}}}
    assert judge_error(case, RuntimeError(now)).shown == same
