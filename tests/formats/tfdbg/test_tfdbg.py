# SPDX-License-Identifier: Apache-2.0
"""Dumps of TensorFlow Debugger V2: a real one (data/log, of TensorFlow 2.21.0, without the lines of
its source files), and written ones.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfdbg_dumps import execution, op, part, record, tensor, trace, whole, write_dump

from opscope.errors import FormatError, OpscopeError
from opscope.formats.mindspore.pb import Wire
from opscope.formats.registry import open_run
from opscope.formats.tfdbg import FORMAT
from opscope.formats.tfdbg.files import checksum, records
from opscope.formats.tfdbg.tensors import FULL, kept, load_value
from opscope.report.terminal import next_command
from opscope.run.protocol import Run
from opscope.run.query import records as table
from opscope.run.schema import Call, Tensor
from opscope.scan.api import scan
from opscope.testing import FormatTests
from opscope.testing.formats import refuses

REAL = Path(__file__).parent / "data" / "log"
CURT, CONCISE, FULL_HEALTH, SHAPE = 2, 3, 4, 5


class TestTensorFlowDebugger(FormatTests):
    format = FORMAT

    @staticmethod
    def samples() -> list[Path]:
        return [REAL]


def calls(run: Run) -> list[Call]:
    return list(table(run, "calls"))


def rows(run: Run, name: str, step: int = 0) -> dict[tuple[str, str], Tensor]:
    number = next(each.index for each in calls(run) if (each.name, each.step) == (name, step))
    return {(row.io, row.slot): row for row in table(run, "tensors") if row.index == number}


def numbers(*values: float) -> bytes:
    return tensor(values, "float64")


# -- the real one ----------------------------------------------------------------------------------


def test_steps_phases_and_lines_of_a_real_dump() -> None:
    run = open_run(REAL)
    found = [
        (each.step, each.phase, each.op, each.source)
        for each in calls(run)
        if each.name in {"Log", "gradient_tape/Reciprocal", "AssignSubVariableOp"}
    ]
    one_step = [
        ("forward", "tf::Log", "/home/me/tiny.py:10"),
        ("backward", "tf::Reciprocal", "/home/me/tiny.py:10"),
        ("optimizer", "tf::AssignSubVariableOp", "/home/me/tiny.py:11"),
    ]
    assert found == [(step, *each) for step in (0, 1) for each in one_step]


def test_devices_are_called_as_elsewhere() -> None:
    assert {each.device for each in calls(open_run(REAL))} == {"cpu", None}


def test_a_gradient_names_its_forward_call() -> None:
    run = open_run(REAL)
    by_index = {each.index: each.name for each in calls(run)}
    forward = {
        each.name: by_index.get(each.forward_index)
        for each in calls(run)
        if each.phase == "backward" and each.step == 0
    }
    assert forward["gradient_tape/Reciprocal"] == "Log"
    assert forward["gradient_tape/MatMul/MatMul"] == "MatMul"


def test_what_an_optimizer_wrote_is_what_is_read_next() -> None:
    run = open_run(REAL)
    written = rows(run, "AssignSubVariableOp")["output", "0"]
    read = rows(run, "MatMul", 1)["input", "1"]
    assert (written.version, written.role) == (read.version, "parameter")
    before = run.value(rows(run, "MatMul")["input", "1"])
    update = run.value(rows(run, "AssignSubVariableOp")["input", "1"])
    np.testing.assert_array_equal(run.value(written), before - update)


def test_gradients_bear_the_names_of_their_parameters() -> None:
    run = open_run(REAL)
    names = {each.index: each.name for each in calls(run)}
    assert [
        (names[row.index], row.tensor_name)
        for row in table(run, "tensors")
        if row.role == "gradient" and row.io == "output"
    ] == [("gradient_tape/MatMul/MatMul", "MatMul")] * 2


def test_arguments_of_a_function_are_what_it_was_called_with() -> None:
    run = open_run(REAL)
    made = rows(run, "Square")["output", "0"]
    assert rows(run, "MatMul")["input", "0"].version == made.version


def test_scan_names_the_first_nan_of_a_real_dump() -> None:
    first = scan(REAL).findings[0]
    assert (first.op, first.step, first.source) == ("tf::Log", 1, "/home/me/tiny.py:10")
    assert next_command(first, "dump") == "opscope show dump Log"  # torch has no tf::Log to run


# -- modes -----------------------------------------------------------------------------------------


def summed(folder: Path, mode: int, proto: bytes) -> Run:
    return open_run(
        write_dump(folder, ops=[op("Exp", "e", "x:0")], traces=[trace(1.0, "e", proto, mode=mode)])
    )


def columns(run: Run) -> dict[str, Any]:
    row = rows(run, "e")["output", "0"]
    names = ("dtype", "shape", "size", "nan", "pos_inf", "neg_inf", "neg", "zero", "pos", "min")
    return {name: getattr(row, name) for name in names if getattr(row, name) is not None}


def test_full_health_gives_counts(tmp_path: Path) -> None:
    run = summed(tmp_path, FULL_HEALTH, numbers(9, 0, 1, 2, 15, 1, 2, 3, 4, 0, 5))
    assert columns(run) == {
        "dtype": "float32", "size": 15, "neg_inf": 1, "pos_inf": 2, "nan": 3, "neg": 4, "zero": 0,
        "pos": 5,
    }  # fmt: skip


def test_concise_health_gives_what_is_not_finite(tmp_path: Path) -> None:
    run = summed(tmp_path, CONCISE, numbers(9, 15, 0, 2, 1))
    assert columns(run) == {"dtype": "unknown", "size": 15, "neg_inf": 0, "pos_inf": 2, "nan": 1}
    assert scan(run).findings[0].op == "tf::Exp"


def test_curt_health_gives_no_count_it_does_not_know(tmp_path: Path) -> None:
    run = summed(tmp_path / "one", CURT, numbers(9, 1))
    assert columns(run) == {"dtype": "unknown"}
    (problem,) = run.problems
    assert problem.startswith("e (/home/me/train.py:7) is the first whose result holds a NaN or")
    sound = summed(tmp_path / "none", CURT, numbers(9, 0))
    assert columns(sound) == {"dtype": "unknown", "nan": 0, "pos_inf": 0, "neg_inf": 0}
    assert sound.problems == ()


def test_shapes_are_known_up_to_six_sizes(tmp_path: Path) -> None:
    run = summed(tmp_path / "two", SHAPE, numbers(9, 1, 2, 6, 2, 3, 0, 0, 0, 0))
    assert columns(run) == {"dtype": "float32", "shape": (2, 3), "size": 6}
    deep = summed(tmp_path / "seven", SHAPE, numbers(9, 1, 7, 64, 1, 2, 2, 2, 2, 2))
    assert columns(deep) == {"dtype": "float32", "size": 64}


@pytest.mark.parametrize("mode", [CURT, CONCISE, FULL_HEALTH, SHAPE])
def test_numbers_that_are_no_counts_are_left_out(tmp_path: Path, mode: int) -> None:
    run = summed(tmp_path, mode, numbers(*[float("nan")] * 11))
    assert columns(run) == {"dtype": "unknown"}


# -- data flow -------------------------------------------------------------------------------------


def test_identities_and_constants_are_no_calls(tmp_path: Path) -> None:
    run = open_run(
        write_dump(
            tmp_path,
            ops=[
                op("Const", "c"),
                op("Exp", "e", "c:0"),
                op("Identity", "i", "e:0"),
                op("Log", "l", "i:0"),
            ],
            traces=[
                trace(1.0, "c", tensor([1.0])),
                trace(1.1, "e", tensor([2.5])),
                trace(1.2, "l", tensor([1.0])),
            ],
        )
    )
    assert [each.name for each in calls(run)] == ["e", "l"]
    assert rows(run, "e")["input", "0"].role == "constant"
    assert rows(run, "l")["input", "0"].version == rows(run, "e")["output", "0"].version


def test_a_function_that_comes_again_is_a_step(tmp_path: Path) -> None:
    traces = [trace(time, "e", tensor([time])) for time in (1.0, 2.0, 3.0)]
    executed = [execution(time + 0.5, "__inference_g_1", [], [], graph="g") for time in (1, 2, 3)]
    run = open_run(write_dump(tmp_path, ops=[op("Exp", "e")], traces=traces, executions=executed))
    assert [(each.name, each.step) for each in calls(run)] == [("e", 0), ("e", 1), ("e", 2)]


def test_a_loop_inside_a_function_is_no_step(tmp_path: Path) -> None:
    traces = [trace(time, "e", tensor([time]), graph="body") for time in (1.0, 1.1, 1.2)]
    run = open_run(
        write_dump(
            tmp_path,
            ops=[op("Exp", "e", graph="body")],
            traces=traces,
            executions=[execution(2.0, "__inference_g_1", [], [], graph="g")],
            graphs=[("root", "", ""), ("g", "step", "root"), ("body", "while_body_3", "g")],
        )
    )
    assert [(each.name, each.step) for each in calls(run)] == [("e", 0), ("e#2", 0), ("e#3", 0)]


def test_passes_of_a_parallel_pipeline_are_left_out(tmp_path: Path) -> None:
    graphs = [("root", "", ""), ("g", "Dataset_map_f", "root")]
    made = {"ops": [op("Exp", "e")], "traces": [trace(2.0, "e", tensor([1.0]))], "graphs": graphs}
    for kind, pipeline in (("MapDataset", ["e"]), ("ParallelMapDatasetV2", [])):
        run = open_run(
            write_dump(tmp_path / kind, executions=[execution(1.0, kind, [1], [2])], **made)
        )
        assert [each.name for each in calls(run)] == [kind, *pipeline]


def test_gradients_that_are_sums_pile_up_nowhere(tmp_path: Path) -> None:
    ops = [
        op("Placeholder", "r"),
        op("ReadVariableOp", "v", "r:0"),
        op("Exp", "e", "v:0"),
        op("Mul", "gradient_tape/Mul", "e:0", "e:0"),
        op("AddN", "gradient_tape/AddN", "gradient_tape/Mul:0", "gradient_tape/Mul:0"),
        op("AssignSubVariableOp", "a", "r:0", "gradient_tape/AddN:0", outputs=0),
    ]
    names = ("v", "e", "gradient_tape/Mul", "gradient_tape/AddN")
    traces = [
        trace(step + place / 10, name, tensor([0.1 * step + 0.01 * place] * 4))
        for step in range(1, 6)
        for place, name in enumerate(names)
    ]
    ended = [execution(step + 0.5, "__inference_g_1", [], [], graph="g") for step in range(1, 6)]
    run = open_run(write_dump(tmp_path, ops=ops, traces=traces, executions=ended))
    assert rows(run, "gradient_tape/AddN", 3)["output", "0"].role == "gradient"
    assert scan(run).summary["warnings"] == []


def test_executions_without_a_gradient_are_one_step(tmp_path: Path) -> None:
    one = [("Exp", [1], [2]), ("Mul", [2], [3]), ("AssignSubVariableOp", [1, 3], [])]
    executed = [
        execution(step + place / 10, kind, read, written, *[tensor([1.0])] * len(written))
        for step in (1, 2)
        for place, (kind, read, written) in enumerate(one)
    ]
    run = open_run(write_dump(tmp_path, executions=executed))
    assert {each.step for each in calls(run)} == {0}  # no gradient: nothing was trained


def test_eager_executions_are_joined_by_their_tensors(tmp_path: Path) -> None:
    run = open_run(
        write_dump(
            tmp_path,
            executions=[
                execution(1.0, "Exp", [1], [2], tensor([3.0])),
                execution(2.0, "Log", [2], [3], tensor([1.0])),
            ],
        )
    )
    assert rows(run, "Log")["input", "0"].version == rows(run, "Exp")["output", "0"].version
    assert calls(run)[0].source == "/home/me/train.py:7"


# -- values ----------------------------------------------------------------------------------------


def loaded(path: Path, proto: bytes) -> np.ndarray[Any, Any]:
    path.write_bytes(proto)
    return load_value(path, f"0+{len(proto)}", None)


def test_numbers_in_fields_of_their_own(tmp_path: Path) -> None:
    shape = part(2, part(2, whole(1, 3)))
    floats = whole(1, 1) + shape + part(5, struct.pack("<3f", 1.0, 2.0, 3.0))
    np.testing.assert_array_equal(loaded(tmp_path / "f", floats), np.float32([1, 2, 3]))
    filled = whole(1, 3) + shape + whole(7, 5)
    np.testing.assert_array_equal(loaded(tmp_path / "i", filled), np.int32([5, 5, 5]))
    negative = whole(1, 9) + shape + whole(10, (1 << 64) - 2)
    np.testing.assert_array_equal(loaded(tmp_path / "l", negative), np.int64([-2] * 3))
    half = whole(1, 19) + shape + whole(13, 0x7C00)
    np.testing.assert_array_equal(loaded(tmp_path / "h", half), np.float16([np.inf] * 3))


def test_one_number_does_not_stand_for_more_than_memory_holds(tmp_path: Path) -> None:
    shape = part(2, part(2, whole(1, 1 << 40)))
    with pytest.raises(FormatError, match="1 numbers for a tensor of"):
        loaded(tmp_path / "f", whole(1, 1) + shape + part(5, struct.pack("<f", 1.0)))


# -- files -----------------------------------------------------------------------------------------


def test_checksum_is_that_of_record_files() -> None:
    assert checksum(struct.pack("<Q", 0x2C)) == 0x45CCAEF4  # as the real dump has it


def test_a_torn_file_gives_what_stands_before(tmp_path: Path) -> None:
    write_dump(
        tmp_path,
        ops=[op("Exp", "e"), op("Log", "l", "e:0")],
        traces=[trace(1.0, "e", tensor([1.0])), trace(1.1, "l", tensor([0.0]))],
    )
    path = tmp_path / "tfdbg_events.1.host.graph_execution_traces"
    path.write_bytes(path.read_bytes()[:-9])
    run = open_run(tmp_path)
    assert [each.name for each in calls(run)] == ["e"]
    assert any("cut short" in problem for problem in run.problems)


def test_a_length_without_its_checksum_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(struct.pack("<QI", 4, 0) + b"abcd" + bytes(4))
    with pytest.raises(FormatError, match="checksum"):
        list(records(path))
    path.write_bytes(record(b"abcd"))
    assert list(records(path)) == [(12, b"abcd")]


@given(st.binary(max_size=80), st.sampled_from([CURT, CONCISE, FULL_HEALTH, SHAPE, FULL, 99]))
def test_a_tensor_of_any_bytes_is_read_or_refused(data: bytes, mode: int) -> None:
    refuses(lambda: kept(Wire(data, "dump"), mode), OpscopeError)
