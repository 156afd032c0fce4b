# SPDX-License-Identifier: Apache-2.0
"""Calls of any run as dump files, and back through our own reader."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cann_dumps import dump, operator, raw
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.errors import MissingValueError
from opscope.formats import hifloat8, layouts
from opscope.formats.cann import dumpfile
from opscope.formats.cann.detection import FORMAT
from opscope.formats.cann.writer import write_run
from opscope.formats.convert import convert
from opscope.formats.writing.job import Job
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Process, Tensor, ValueRef

Array = np.ndarray


def run_of(
    tensors: dict[tuple[int, str, str], Array], calls: list[Call] | None = None, **columns: object
) -> MemoryRun:
    """A run of the tensors keyed by call index, side and slot."""
    indices = sorted({index for index, _, _ in tensors})
    calls = calls or [call_of(index) for index in indices]
    rows = [
        Tensor(
            process=0,
            index=index,
            io=io,
            slot=slot,
            dtype=values.dtype.name,
            shape=values.shape,
            value=ValueRef("m", f"{index}.{io}.{slot}"),
        )
        for (index, io, slot), values in tensors.items()
    ]

    def value(row: Tensor) -> Array:
        return tensors[row.index, row.io, row.slot]

    return MemoryRun(
        RunInfo(path="x", format="memory"),
        [Process(process=0, directory=".", start=1.7e9)],
        calls,
        rows,
        value=value,
        **columns,
    )  # type: ignore[arg-type]


def call_of(index: int, **columns: object) -> Call:
    known = {
        "process": 0,
        "rank": 0,
        "step": 0,
        "level": "operator",
        "phase": "forward",
        "op": "aten::mm.default",
        "name": f"fc:mm#{index}",
    }
    return Call(index=index, **{**known, **columns})  # type: ignore[arg-type]


def written(run: MemoryRun, out: Path, **more: object) -> MemoryRun:
    calls = [(call, run.tensors_of(call.process, call.index)) for call in run.rows("calls")]
    outcome = write_run(run, calls, out, **more)  # type: ignore[arg-type]
    assert outcome.failures == []
    return FORMAT.open(out)  # type: ignore[return-value]


def test_a_recording_becomes_dump_files_and_comes_back(tmp_path: Path) -> None:
    values = {
        (4, "input", "0"): np.arange(6, dtype=np.float32).reshape(2, 3),
        (4, "input", "kwargs.mask"): np.array([True, False]),
        (4, "output", "0"): np.array(2.5, np.float64),
        (9, "output", "0"): np.array([1.5, np.nan], ml_dtypes.bfloat16),
    }
    calls = [
        call_of(4, step=2, rank=3, name="blocks.0.fc:mm#1"),
        call_of(9, step=2, rank=3, op="Conv2D", name="x/Conv2D-op1", task=7, stream=8),
    ]
    back = written(run_of(values, calls), tmp_path, jobs=2)
    found = back.rows("calls")
    assert [(call.name, call.step, call.rank, call.task, call.stream) for call in found] == [
        ("blocks.0.fc:mm#1", 2, 3, 4, 0),
        ("x/Conv2D-op1", 2, 3, 7, 8),
    ]
    assert [call.op for call in found] == ["aten__mm_default", "Conv2D"]
    rows = back.rows("tensors")
    assert [(row.io, row.slot, row.dtype, row.shape) for row in rows] == [
        ("input", "0", "float32", (2, 3)),
        ("input", "1", "bool", (2,)),
        ("output", "0", "float64", ()),
        ("output", "0", "bfloat16", (2,)),
    ]
    for row, value in zip(rows, values.values(), strict=True):
        assert back.value(row).tobytes() == value.tobytes()
    assert back.problems == ()


def test_names_are_those_the_readers_take(tmp_path: Path) -> None:
    written(
        run_of({(4, "output", "0"): np.zeros(1)}, [call_of(4, name="<root>:add~bwd#1")]), tmp_path
    )
    (path,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (
        str(path.relative_to(tmp_path))
        == "20231114221320/0/opscope/0/0/aten__mm_default._root__add_bwd_1.4.0.1700000000000004"
    )
    assert dumpfile.read(path).header.op_name == "<root>:add~bwd#1"


def test_overflow_bits_become_a_record_and_come_back(tmp_path: Path) -> None:
    values = {(index, "output", "0"): np.zeros(1, np.float16) for index in (1, 2)}
    calls = [call_of(1, status=0x110), call_of(2)]
    back = written(run_of(values, calls), tmp_path)
    assert [call.status for call in back.rows("calls")] == [0x110, None]
    assert len(list(tmp_path.rglob("Opdebug.Node_OpDebug.*"))) == 1


def test_a_value_that_was_not_kept_has_a_null_address(tmp_path: Path) -> None:
    run = run_of(
        {
            (1, "input", "0"): np.arange(4, dtype=np.float32),
            (1, "output", "0"): np.arange(2, dtype=np.int8),
        }
    )
    first, second = run.rows("tensors")
    lost = Tensor(process=0, index=1, io="input", slot="0", dtype=first.dtype, shape=first.shape)
    outcome = write_run(run, [(run.rows("calls")[0], [lost, second])], tmp_path)
    assert (outcome.files, outcome.tensors, outcome.failures) == (1, 1, [])
    back = FORMAT.open(tmp_path)
    assert [(row.slot, row.partial, row.shape) for row in back.rows("tensors")] == [
        ("0", True, (4,)),
        ("0", False, (2,)),
    ]
    assert back.value(back.rows("tensors")[1]).tolist() == [0, 1]


def test_calls_without_any_value_are_left_out(tmp_path: Path) -> None:
    run = run_of({(1, "output", "0"): np.zeros(3)})
    lost = Tensor(process=0, index=1, io="output", slot="0", dtype="float64", shape=(3,))
    assert write_run(run, [(run.rows("calls")[0], [lost])], tmp_path).files == 0
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_told_and_the_rest_is(tmp_path: Path) -> None:
    values = {
        (1, "input", "0"): np.array([1], ml_dtypes.float8_e4m3fnuz),
        (1, "output", "0"): np.zeros(2, np.int8),
    }

    def value(row: Tensor) -> Array:
        if row.index == 2:
            raise MissingValueError("gone")
        return values[row.index, row.io, row.slot]

    run = run_of(values | {(2, "output", "0"): np.zeros(1)})
    run = MemoryRun(run.info, run.processes, run.rows("calls"), run.rows("tensors"), value=value)
    outcome = write_run(
        run, [(call, run.tensors_of(0, call.index)) for call in run.rows("calls")], tmp_path
    )
    assert outcome.failures == [
        "fc:mm#1 input 0: CANN has no type for float8_e4m3fnuz",
        "fc:mm#2 output 0: gone",
    ]
    assert outcome.tensors == 1


def test_a_dump_written_again_has_host_values_and_true_types(tmp_path: Path) -> None:
    host = np.arange(1, 2 * 20 * 3 * 4 + 1, dtype=np.float32).reshape(2, 20, 3, 4)
    codes = np.arange(256, dtype=np.uint8)
    outputs = [
        dump(layouts.from_host(host, "NCHW", "NC1HWC0"), "NC1HWC0", host.shape),
        raw(codes.tobytes(), (256,), 33),
        raw(b"\x12\x34", (4,), 28),
    ]
    operator(tmp_path / "in" / "Conv2D.conv.1.2.3", outputs=outputs, op_name="net/conv")
    source = FORMAT.open(tmp_path / "in")
    back = written(source, tmp_path / "out")  # type: ignore[arg-type]
    first, second, third = back.rows("tensors")
    assert (first.layout, second.dtype, third.dtype) == ("ND", "hifloat8", "int4")
    np.testing.assert_array_equal(back.value(first), host)
    np.testing.assert_array_equal(back.value(second), hifloat8.decode(codes))
    assert back.value(third).tolist() == [2, 1, 4, 3]


def test_long_names_are_stored_under_their_hash(tmp_path: Path) -> None:
    name = "scope/" * 60 + "op"
    back = written(run_of({(1, "output", "0"): np.zeros(1)}, [call_of(1, name=name)]), tmp_path)
    assert back.rows("calls")[0].name == name
    assert len(list(tmp_path.rglob("mapping.csv"))) == 1


def test_done_counts_calls(tmp_path: Path) -> None:
    seen: list[int] = []
    written(
        run_of({(index, "output", "0"): np.zeros(1) for index in range(30)}),
        tmp_path,
        jobs=3,
        done=seen.append,
    )
    assert seen == list(range(1, 31))


DTYPES = st.sampled_from(
    [
        np.float16,
        np.float32,
        np.int8,
        np.uint16,
        np.int64,
        np.complex64,
        np.bool_,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e5m2,
    ]
)
SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@given(
    st.lists(
        st.tuples(st.sampled_from(["input", "output"]), DTYPES, SHAPES), min_size=1, max_size=6
    ),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_any_tensors_survive(
    tmp_path_factory: pytest.TempPathFactory,
    described: list[tuple[str, type, tuple[int, ...]]],
    data: st.DataObject,
) -> None:
    tensors: dict[tuple[int, str, str], Array] = {}
    for io, dtype, shape in described:
        nbytes = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
        content = np.frombuffer(data.draw(st.binary(min_size=nbytes, max_size=nbytes)), np.uint8)
        values = content % 2 == 0 if dtype is np.bool_ else content.view(dtype)
        slot = sum(key[1] == io for key in tensors)
        tensors[1, io, str(slot)] = values.reshape(shape)
    back = written(run_of(tensors), tmp_path_factory.mktemp("any"))
    for row in back.rows("tensors"):
        expected = tensors[1, row.io, row.slot]
        assert back.value(row).shape == expected.shape or expected.shape == ()
        assert back.value(row).tobytes() == expected.tobytes()


def test_opscope_convert_writes_dump_files(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    operator(
        tmp_path / "in" / "Add.add.1.2.3",
        outputs=[dump(values, "ND", values.shape)],
        op_name="net/add",
    )
    report = convert([tmp_path / "in"], Job(out=tmp_path / "out", kind="cann"), lambda *_: None)
    assert (report.tensors, report.failures, report.problems) == (1, [], [])
    back = FORMAT.open(tmp_path / "out")
    assert [call.name for call in back.rows("calls")] == ["net/add"]
    np.testing.assert_array_equal(back.value(back.rows("tensors")[0]), values)
