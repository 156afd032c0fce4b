# SPDX-License-Identifier: Apache-2.0
"""Values made from statistics: the statistics they must have again, and what is said of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.repro.single_calls import record, run_of, run_script, statistics

import opscope.repro
from opscope.errors import FormatError, MissingValueError
from opscope.kernels import reference
from opscope.narrow import name_of, widened
from opscope.repro.synthesis import synthesise
from opscope.run.memory import MemoryRun
from opscope.run.protocol import Coverage
from opscope.run.schema import Call, Tensor

MET = (
    "size",
    "nan",
    "pos_inf",
    "neg_inf",
    "zero",
    "neg",
    "pos",
    "min",
    "max",
    "min_int",
    "max_int",
)


def row_of(array: np.ndarray[Any, Any], **changes: Any) -> Tensor:
    row = Tensor(
        process=0,
        index=0,
        io="input",
        slot="0",
        dtype=array.dtype.name,
        shape=array.shape,
        **statistics(array),
    )
    return msgspec.structs.replace(row, **changes)


def without_values(recorded: tuple[MemoryRun, Call], *slots: str) -> tuple[MemoryRun, Call]:
    """The same run after the values of these inputs were dropped."""
    run, call = recorded
    rows = [
        msgspec.structs.replace(row, value=None) if row.io == "input" and row.slot in slots else row
        for row in run.rows("tensors")
    ]
    return run_of(
        rows, {(row.io, row.slot): run.value(row) for row in rows if row.value is not None}, call
    )


@pytest.mark.parametrize(
    "values",
    [
        [2**53 + 1] * 2,
        [2**53 + 1, 2**53 + 3, 2**53 + 5],
        [-(2**53) - 3, -(2**53) - 1],
        [-(2**62) - 1, 3, 2**62 + 1],
    ],
)
def test_whole_numbers_that_no_float_holds_are_met(values: list[int]) -> None:
    array = np.array(values)
    made, exact = synthesise(row_of(array), array.size)
    assert (made.min(), made.max()) == (array.min(), array.max())
    assert not exact or np.array_equal(made, array)


FLOATS = [
    np.float16,
    np.float32,
    np.float64,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
]
TYPES = [*FLOATS, np.int8, np.int64, np.uint8, np.int32, np.bool_]


@given(data=st.data(), shape=arrays.array_shapes(max_dims=2, max_side=12))
@settings(max_examples=300, deadline=None)
def test_counts_and_extremes_are_met(data: st.DataObject, shape: tuple[int, ...]) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(TYPES)))
    if dtype.kind in "iu":
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        elements: Any = st.integers(low, high)
    elif dtype.kind == "b":
        elements = st.booleans()
    else:
        elements = st.floats(width=32, allow_nan=True, allow_infinity=True)
    drawn = data.draw(
        arrays.arrays(np.float64 if dtype.kind not in "iub" else dtype, shape, elements=elements)
    )
    with np.errstate(over="ignore", invalid="ignore"):
        array = drawn.astype(dtype)
    row = row_of(array)
    made, exact = synthesise(row, array.size)
    assert name_of(made.dtype) == name_of(array.dtype)
    made = widened(made)
    here = statistics(made)
    assert {name: here.get(name) for name in MET} == {name: getattr(row, name) for name in MET}
    if exact:
        assert np.array_equal(
            made.astype(np.float64), array.ravel().astype(np.float64), equal_nan=True
        )
    again, _ = synthesise(row, array.size)
    assert widened(again).tobytes() == made.tobytes()


@pytest.mark.parametrize("kind", ["normal", "positive", "negative", "shifted", "sparse"])
def test_mean_and_norm_are_near(kind: str) -> None:
    random = np.random.default_rng(5)
    x = random.standard_normal(20_000)
    array = {
        "normal": x,
        "positive": np.abs(x),
        "negative": -np.exp(x),
        "shifted": x + 5,
        "sparse": np.where(x > 1, x, 0),
    }[kind].astype("f4")
    made, exact = synthesise(row_of(array), array.size)
    assert not exact
    here, was = statistics(made), statistics(array)
    assert here["mean"] == pytest.approx(was["mean"], rel=0.01, abs=0.01)
    assert here["l2norm"] == pytest.approx(was["l2norm"], rel=0.01)


@pytest.mark.parametrize("value", [0.0, -0.0, 2.5])
def test_the_digest_tells_the_sign_of_zero(value: float) -> None:
    array = np.full(6, value, np.float16)
    made, exact = synthesise(row_of(array, digest=reference.digest(array)), 6)
    assert exact
    assert made.tobytes() == array.tobytes()
    assert not synthesise(row_of(array, digest=1), 6)[1]


def test_every_int64_extreme_is_exact() -> None:
    array = np.array([-(2**63), 2**63 - 1, 0, 5])
    assert {int(made) for made in synthesise(row_of(array), 4)[0]} >= {-(2**63), 2**63 - 1, 0}


def test_expanded_tensors_count_their_elements_several_times() -> None:
    made, _ = synthesise(row_of(np.broadcast_to(np.float32([1, 0, -2]), (50, 3))), 3)
    assert sorted(made.tolist()) == [-2.0, 0.0, 1.0]


def test_infinities_may_or_may_not_be_counted_by_their_sign() -> None:
    array = np.float32([math.inf, -math.inf, 1.0, 2.0])
    apart = row_of(array)
    together = msgspec.structs.replace(apart, pos=3, neg=1)
    assert sorted(synthesise(apart, 4)[0].tolist()) == sorted(synthesise(together, 4)[0].tolist())


@pytest.mark.parametrize("changes", [{"pos": 5}, {"nan": -1}, {"size": 7}, {"zero": 1}], ids=str)
def test_statistics_that_contradict_each_other_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(FormatError, match="contradict each other"):
        synthesise(row_of(np.float32([1, 2, 3]), **changes), 3)


@pytest.mark.parametrize(
    "changes", [{"size": None}, {"nan": None}, {"min": None}, {"max": None}], ids=str
)
def test_missing_statistics_are_refused(changes: dict[str, None]) -> None:
    with pytest.raises(MissingValueError, match="record again with --values full"):
        synthesise(row_of(np.float32([1, 2, 3]), **changes), 3)


def test_synthesised_inputs_are_said_loudly_and_still_fail(tmp_path: Path) -> None:
    lost = without_values(record("aten::log.default", torch.tensor([3.0, -1.0, 0.5, 2.0])), "0")
    repro = opscope.repro.write(*lost, tmp_path / "case")
    assert "SYNTHESISED" in repro.warnings[0]
    assert opscope.repro.read_case(tmp_path / "case").tensors[0].values == "synthesised"
    assert "SYNTHESISED" in (tmp_path / "case" / "README.md").read_text()
    code, document = run_script(tmp_path / "case")
    assert code == 1
    assert any("SYNTHESISED" in line for line in document["lines"])


def test_constant_inputs_need_no_invention(tmp_path: Path) -> None:
    lost = without_values(record("aten::div.Tensor", torch.ones(2, 2), torch.zeros(2, 2)), "0", "1")
    repro = opscope.repro.write(*lost, tmp_path / "case")
    assert repro.warnings == ()
    assert [row.values for row in opscope.repro.read_case(tmp_path / "case").tensors] == [
        "exact",
        "exact",
    ]
    lines = run_script(tmp_path / "case")[1]["lines"]
    assert any("bit for bit the recorded output" in line for line in lines)


def test_values_are_taken_from_another_row_of_the_same_version(tmp_path: Path) -> None:
    run, call = without_values(record("aten::log.default", torch.tensor([0.0, 7.0, 5.0])), "0")
    rows = list(run.rows("tensors"))
    source = msgspec.structs.replace(rows[0], index=2, io="output", value=rows[1].value)
    elsewhere = msgspec.structs.replace(source, index=3, stride=(2,))
    given = {("output", "0"): np.float32([0.0, 7.0, 5.0])}

    def value(row: Tensor) -> Any:
        return given[row.io, row.slot] if row.io == "output" else np.float32([0.0, 7.0, 5.0])

    found = MemoryRun(run.info, (), [call], [*rows, elsewhere, source], value=value)
    opscope.repro.write(found, call, tmp_path / "case")
    assert opscope.repro.read_case(tmp_path / "case").tensors[0].values == "recorded"
    other = MemoryRun(run.info, (), [call], [*rows, elsewhere], value=value)
    opscope.repro.write(other, call, tmp_path / "other")
    assert opscope.repro.read_case(tmp_path / "other").tensors[0].values == "synthesised"


def test_values_that_are_gone_with_old_steps_are_synthesised(tmp_path: Path) -> None:
    run, call = record("aten::log.default", torch.tensor([0.0, 7.0, 5.0]))

    def gone(row: Tensor) -> Any:
        raise MissingValueError(f"values of {row.slot} are gone with old steps")

    opscope.repro.write(
        MemoryRun(run.info, (), [call], run.rows("tensors"), value=gone), call, tmp_path / "case"
    )
    case = opscope.repro.read_case(tmp_path / "case")
    assert (case.tensors[0].values, case.outputs[0].key) == ("synthesised", None)
    assert run_script(tmp_path / "case")[0] == 1


def test_uninitialised_memory_is_zeros_and_said(tmp_path: Path) -> None:
    run, call = record("aten::copy_.default", torch.ones(3), torch.tensor([math.inf, 1.0, 2.0]))
    blank = dict.fromkeys(statistics(np.float32([1.0])))
    rows = [
        msgspec.structs.replace(row, value=None, **blank)
        if (row.io, row.slot) == ("input", "0")
        else row
        for row in run.rows("tensors")
    ]
    values = {(row.io, row.slot): run.value(row) for row in rows if row.value is not None}
    repro = opscope.repro.write(*run_of(rows, values, call), tmp_path / "case")
    assert "uninitialised memory; here it is zeros" in repro.warnings[0]
    assert run_script(tmp_path / "case")[0] == 1
    with pytest.raises(MissingValueError, match="neither its values nor its statistics"):
        opscope.repro.write(*run_of(rows, values, call, coverage=Coverage()), tmp_path / "foreign")
