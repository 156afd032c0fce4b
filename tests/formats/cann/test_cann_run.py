# SPDX-License-Identifier: Apache-2.0
"""Directories of dump files as runs: calls, rows, values, slices, overflow records, and what is
wrong with some.
"""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cann_dumps import classic_record, dump, modern_record, operator, raw

from opscope.errors import FormatError, MissingValueError
from opscope.formats import hifloat8, layouts
from opscope.formats.cann import names, tree
from opscope.formats.cann.detection import FORMAT
from opscope.formats.cann.message import Attribute, OriginalOp
from opscope.formats.registry import open_run
from opscope.narrow import name_of
from opscope.run.protocol import Run

DATA = Path(__file__).parent / "data"


@pytest.fixture
def real(tmp_path: Path) -> Path:
    for path in DATA.iterdir():
        if path.is_file() and path.suffix != ".md":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_the_real_files_are_a_run(real: Path) -> None:
    assert FORMAT.detect(real)
    run = FORMAT.open(real)
    assert isinstance(run, Run)
    assert run.problems == ()
    assert [(call.op, call.name, call.task, call.stream) for call in run.rows("calls")] == [
        ("ConcatV2D", "concatv2", 0, 0),
        ("Add", "Default/Add-op0", 1, 2),
    ]
    assert run.info.format == "cann"
    assert len(run.processes) == 1


def test_statistics_are_those_of_numpy_on_the_raw_bytes(real: Path) -> None:
    run = FORMAT.open(real)
    payload = (real / "ConcatV2D.concatv2.0.0.550288648").read_bytes()[29696:]
    expected = np.frombuffer(payload, np.float16).astype(np.float64)
    row = run.tensors_of(0, 0)[2]
    assert (row.io, row.slot, row.dtype, row.shape, row.layout) == (
        "output",
        "0",
        "float16",
        (1, 14682),
        "NHWC",
    )
    assert (row.size, row.min, row.max) == (expected.size, expected.min(), expected.max())
    assert row.mean == pytest.approx(expected.mean(), rel=1e-12)
    assert row.l2norm == pytest.approx(np.linalg.norm(expected), rel=1e-12)
    assert (row.neg, row.zero, row.pos) == (
        (expected < 0).sum(),
        (expected == 0).sum(),
        (expected > 0).sum(),
    )


def test_a_saturated_output_shows_in_its_row(real: Path) -> None:
    (row,) = FORMAT.open(real).tensors_of(0, 1)
    assert (row.dtype, row.min, row.max, row.near_limit, row.pos_inf) == (
        "float16",
        65504.0,
        65504.0,
        2,
        0,
    )


def test_one_file_is_a_run(real: Path) -> None:
    path = real / "Add.Default_Add-op0.1.2.1634155934514051"
    assert FORMAT.detect(path)
    run = FORMAT.open(path)
    assert len(run.rows("calls")) == 1
    np.testing.assert_array_equal(
        run.value(run.rows("tensors")[0]), np.array([65504, 65504], np.float16)
    )


@pytest.mark.parametrize("name", ["a.npy", "x.json", "Op.op.1.2.3", "notes"])
def test_other_things_are_not(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x93NUMPY whatever it is")
    assert not FORMAT.detect(tmp_path)
    assert not FORMAT.detect(tmp_path / name)


def test_an_empty_directory_is_not(tmp_path: Path) -> None:
    assert not FORMAT.detect(tmp_path)


def test_values_come_in_host_order_without_padding(tmp_path: Path) -> None:
    host = np.arange(1, 2 * 20 * 3 * 4 + 1, dtype=np.float32).reshape(2, 20, 3, 4)
    operator(
        tmp_path / "Conv2D.conv.1.2.3",
        outputs=[dump(layouts.from_host(host, "NCHW", "NC1HWC0"), "NC1HWC0", host.shape)],
    )
    run = FORMAT.open(tmp_path)
    (row,) = run.rows("tensors")
    assert (row.layout, row.shape, row.size, row.zero, row.min) == (
        "NC1HWC0",
        (2, 20, 3, 4),
        host.size,
        0,
        1.0,
    )
    np.testing.assert_array_equal(run.value(row), host)


def test_grouped_weights_and_matrices_too(tmp_path: Path) -> None:
    weight = np.arange(1, 3 * 3 * 24 * 96 + 1, dtype=np.float32).reshape(3, 3, 24, 96)
    packed = layouts.from_host(weight, "HWCN", "FRACTAL_Z", groups=3)
    nchw = (96, 24, 3, 3)
    matrix = np.arange(1, 20 * 33 + 1, dtype=np.float16).reshape(20, 33)
    inputs = [
        dump(packed, "FRACTAL_Z", nchw, groups=3),
        dump(layouts.from_host(matrix, "ND", "FRACTAL_NZ"), "FRACTAL_NZ", (20, 33)),
    ]
    operator(tmp_path / "Conv2D.conv.1.2.3", inputs=inputs)
    run = FORMAT.open(tmp_path)
    first, second = run.rows("tensors")
    np.testing.assert_array_equal(run.value(first), weight.transpose(3, 2, 0, 1))
    np.testing.assert_array_equal(run.value(second), matrix)


def test_the_original_format_decides_between_layouts_that_fit(tmp_path: Path) -> None:
    host = np.arange(1, 65, dtype=np.float32).reshape(1, 4, 4, 4)
    device = layouts.from_host(host, "NHWC", "NC1HWC0")
    outputs = [dump(device, "NC1HWC0", host.shape, original_op=OriginalOp(format=1))]
    operator(tmp_path / "Conv2D.conv.1.2.3", outputs=outputs)
    run = FORMAT.open(tmp_path)
    np.testing.assert_array_equal(run.value(run.rows("tensors")[0]), host)


def test_a_layout_nobody_published_stays_as_it_is(tmp_path: Path) -> None:
    device = np.ones((2, 4, 16, 16), np.float16)
    operator(tmp_path / "LSTM.l.1.2.3", outputs=[dump(device, "FRACTAL_ZN_LSTM", (30, 40))])
    (row,) = FORMAT.open(tmp_path).rows("tensors")
    assert (row.layout, row.shape, row.size) == ("FRACTAL_ZN_LSTM", (2, 4, 16, 16), 2048)


@pytest.mark.parametrize(
    ("values", "proto", "dtype"),
    [
        (np.array([1.5, -2.0], ml_dtypes.bfloat16), 27, "bfloat16"),
        (np.array([1.5, np.nan], ml_dtypes.float8_e4m3fn), 35, "float8_e4m3fn"),
        (np.array([1.5, np.inf], ml_dtypes.float8_e5m2), 34, "float8_e5m2"),
        (np.array([1 + 2j], np.complex64), 16, "complex64"),
        (np.array([True, False]), 11, "bool"),
    ],
)
def test_true_types_are_kept(values: np.ndarray, proto: int, dtype: str, tmp_path: Path) -> None:
    operator(tmp_path / "Op.op.1.2.3", outputs=[raw(values.tobytes(), values.shape, proto)])
    run = FORMAT.open(tmp_path)
    (row,) = run.rows("tensors")
    assert row.dtype == dtype
    assert name_of(run.value(row).dtype) == dtype
    assert run.value(row).tobytes() == values.tobytes()
    assert row.nan == (1 if dtype == "float8_e4m3fn" else 0)
    assert row.pos_inf == (1 if dtype == "float8_e5m2" else 0)


def test_types_numpy_does_not_have_are_decoded_and_keep_their_name(tmp_path: Path) -> None:
    codes = np.array([0x08, 0x80, 0x6F, 0xEF], np.uint8)
    outputs = [raw(codes.tobytes(), (4,), 33), raw(b"\x97\x81", (4,), 28), raw(b"\x81", (8,), 29)]
    operator(tmp_path / "Op.op.1.2.3", outputs=outputs)
    run = FORMAT.open(tmp_path)
    hif8, int4, uint1 = run.rows("tensors")
    assert [hif8.dtype, int4.dtype, uint1.dtype] == ["hifloat8", "int4", "uint1"]
    np.testing.assert_array_equal(run.value(hif8), hifloat8.decode(codes))
    assert (hif8.nan, hif8.pos_inf, hif8.neg_inf, hif8.max) == (1, 1, 1, 1.0)
    assert run.value(int4).tolist() == [7, -7, 1, -8]
    assert (int4.min_int, int4.max_int) == (-8, 7)
    assert run.value(uint1).tolist() == [1, 0, 0, 0, 0, 0, 0, 1]


def test_types_without_meaning_are_listed_without_statistics(tmp_path: Path) -> None:
    operator(
        tmp_path / "exception_info.2.0.20250402071926393",
        inputs=[raw(b"\x7f" * 8, (), 0), raw(bytes(4), (2,), 13)],
    )
    run = FORMAT.open(tmp_path)
    undefined, text = run.rows("tensors")
    assert (undefined.dtype, undefined.shape, undefined.size, undefined.max) == (
        "undefined",
        (8,),
        None,
        None,
    )
    assert (text.dtype, text.size) == ("string", None)
    with pytest.raises(MissingValueError):
        run.value(undefined)
    assert run.problems == ()


def test_scalars_and_shapes_left_out(tmp_path: Path) -> None:
    outputs = [
        raw(np.float32(2.5).tobytes(), (), 1),
        raw(np.arange(3, dtype=np.float32).tobytes(), (), 1),
        raw(b"", (0, 3), 1),
    ]
    operator(tmp_path / "Op.op.1.2.3", outputs=outputs)
    run = FORMAT.open(tmp_path)
    assert [row.shape for row in run.rows("tensors")] == [(), (3,), (0, 3)]
    assert run.rows("tensors")[0].max == 2.5
    assert run.rows("tensors")[2].size == 0


def test_a_torn_file_is_partial_and_the_rest_is_read(tmp_path: Path, real: Path) -> None:
    torn = real / "ConcatV2D.concatv2.0.0.550288648"
    torn.write_bytes(torn.read_bytes()[:40000])
    (real / "Bad.bad.1.2.3").write_bytes((DATA / "corpus" / "huge_header_length").read_bytes())
    run = FORMAT.open(real)
    assert [call.op for call in run.rows("calls")] == ["ConcatV2D", "Add"]
    assert [(row.partial, row.size) for row in run.tensors_of(0, 0)] == [
        (False, 14652),
        (False, 30),
        (True, None),
    ]
    assert len(run.rows("tensors")) == 4
    with pytest.raises(MissingValueError, match="only partly"):
        run.value(run.tensors_of(0, 0)[2])
    assert len(run.problems) == 2
    assert all("\n" not in line for line in run.problems)
    assert any("Bad.bad.1.2.3" in line for line in run.problems)
    assert any("ConcatV2D" in line and "output 0" in line for line in run.problems)


def test_a_named_file_that_is_torn_says_so(tmp_path: Path) -> None:
    path = tmp_path / "Add.add.1.2.3"
    path.write_bytes((DATA / "corpus" / "length_past_the_header").read_bytes())
    with pytest.raises(FormatError, match=r"Add\.add\.1\.2\.3 at byte 13"):
        FORMAT.open(path)


def test_a_header_that_promises_too_little_is_a_problem_of_that_tensor(tmp_path: Path) -> None:
    operator(
        tmp_path / "Op.op.1.2.3",
        outputs=[raw(bytes(4), (1 << 40, 1 << 40), 1), raw(bytes(4), (1,), 1)],
    )
    run = FORMAT.open(tmp_path)
    assert [row.slot for row in run.rows("tensors")] == ["1"]
    assert len(run.problems) == 1


def test_memory_the_writer_could_not_read_is_not_taken_for_zeros(tmp_path: Path) -> None:
    message = "[Dump][Exception] the address maybe invalid, addr info: 0x12;4.\n"
    inputs = [raw(bytes(4), (1,), 1), raw(np.float32(3).tobytes(), (1,), 1)]
    operator(tmp_path / "Op.op.1.20250402071926393", inputs=inputs, dfx_message=message)
    run = FORMAT.open(tmp_path)
    assert [(row.partial, row.max) for row in run.rows("tensors")] == [(True, None), (False, 3.0)]
    assert len(run.problems) == 1


def test_directories_give_rank_device_and_step(tmp_path: Path) -> None:
    value = [raw(np.float32(1).tobytes(), (1,), 1)]
    for device in (0, 3):
        for step in (0, 7):
            operator(
                tmp_path / f"20230101120000/{device}/net/1/{step}/Add.add.1.2.{step}",
                outputs=value,
                op_name="net/add",
            )
    run = FORMAT.open(tmp_path)
    assert [
        (call.process, call.rank, call.step, call.index, call.device, call.name)
        for call in run.rows("calls")
    ] == [
        (0, 0, 0, 0, "npu:0", "net/add"),
        (0, 0, 7, 1, "npu:0", "net/add"),
        (1, 3, 0, 0, "npu:3", "net/add"),
        (1, 3, 7, 1, "npu:3", "net/add"),
    ]
    assert [process.directory for process in run.processes] == [
        "20230101120000/0/net/1",
        "20230101120000/3/net/1",
    ]


def test_calls_of_one_name_and_step_are_told_apart(tmp_path: Path) -> None:
    for time in (5, 3):
        operator(tmp_path / f"Add.add.1.2.{time}", outputs=[raw(bytes([time]), (1,), 4)])
    run = FORMAT.open(tmp_path)
    assert [call.name for call in run.rows("calls")] == ["add", "add#2"]
    assert [row.max for row in run.rows("tensors")] == [3.0, 5.0]


def test_order_is_that_of_the_headers_times(tmp_path: Path) -> None:
    operator(tmp_path / "A.a.1.2.9", outputs=[], dump_time=20)
    operator(tmp_path / "B.b.1.2.1", outputs=[], dump_time=30)
    operator(tmp_path / "C.c.1.2.5", outputs=[], dump_time=10)
    assert [call.op for call in FORMAT.open(tmp_path).rows("calls")] == ["C", "A", "B"]


def test_gradients_are_backward_and_aclnn_names_are_turned(tmp_path: Path) -> None:
    operator(tmp_path / "Mul.Gradients_x.1.2.1", outputs=[], op_name="Gradients/x")
    operator(tmp_path / "aclnnIndexSelect_0_L0.GatherV3AiCore.1.2", outputs=[])
    first, second = FORMAT.open(tmp_path).rows("calls")
    assert (first.phase, first.name) == ("backward", "Gradients/x")
    assert (second.op, second.name, second.phase) == (
        "GatherV3AiCore",
        "aclnnIndexSelect_0_L0",
        "forward",
    )


def test_names_that_were_too_long_come_back_from_mapping_csv(tmp_path: Path) -> None:
    long_name = f"Conv2D.{'scope_' * 60}conv.4.2.17"
    stored = names.stored_name(long_name)
    operator(tmp_path / stored, outputs=[raw(bytes(1), (1,), 4)])
    (tmp_path / "mapping.csv").write_text(f"{stored},{long_name}\n")
    assert FORMAT.detect(tmp_path)
    (call,) = FORMAT.open(tmp_path).rows("calls")
    assert (call.op, call.task, call.name) == ("Conv2D", 4, "scope_" * 60 + "conv")


def test_a_name_in_the_header_cannot_lead_anywhere(tmp_path: Path) -> None:
    operator(tmp_path / "Op.op.1.2.3", outputs=[raw(b"x", (1,), 4)], op_name="../../etc/passwd")
    run = FORMAT.open(tmp_path)
    (row,) = run.rows("tensors")
    assert row.value is not None
    assert row.value.shard == "Op.op.1.2.3"


SLICES = {"threadMode": 0, "slice_instance_num": 2, "outputCutList": [[1, 2, 1, 1]]}


def test_slices_cut_by_hand_are_one_operator(tmp_path: Path) -> None:
    whole = np.arange(24, dtype=np.float32).reshape(1, 4, 2, 3)
    attr = (Attribute(name="x", value=json.dumps(SLICES)),)
    for number, part in enumerate(np.split(whole, 2, axis=1)):
        name = f"part0_sgt_graph_0_conv_lxslice{number}"
        operator(
            tmp_path / f"Conv2D.{name}.2.9.17.4.48{number}.0.0",
            [raw(b"i", (1,), 4)],
            [dump(part, "NCHW", part.shape)],
            op_name=name,
            attr=attr,
        )
    run = FORMAT.open(tmp_path)
    (call,) = run.rows("calls")
    assert (call.name, call.context, call.thread) == ("conv", None, None)
    inputs, output = run.rows("tensors")
    assert inputs.partial  # what the first slice read need not be all
    assert output.shape == whole.shape
    np.testing.assert_array_equal(run.value(output), whole)
    assert (output.min, output.max, output.size) == (0.0, 23.0, 24)


def test_slices_of_threads_are_one_operator(tmp_path: Path) -> None:
    whole = np.arange(20, dtype=np.float32).reshape(5, 4)
    ranges = [
        [{"lower": low, "higher": high}, {"lower": 0, "higher": 4}]
        for low, high in ((0, 3), (3, 5))
    ]
    told = {
        "threadMode": 1,
        "slice_instance_num": 2,
        "outputCutList": [[2, 1]],
        "input_tensor_slice": [[one] for one in ranges],
        "output_tensor_slice": [[one] for one in ranges],
    }
    attr = (Attribute(value=json.dumps(told)),)
    for thread, part in enumerate((whole[:3], whole[3:])):
        tensors = [dump(part, "ND", whole.shape, shape=whole.shape)]
        operator(
            tmp_path / f"Add.sgt_graph_0_add.2.9.17{thread}.4.487.{thread}.0",
            tensors,
            tensors,
            attr=attr,
        )
    run = FORMAT.open(tmp_path)
    assert len(run.rows("calls")) == 1
    for row in run.rows("tensors"):
        np.testing.assert_array_equal(run.value(row), whole)


def test_slices_that_are_not_all_there_stay_alone(tmp_path: Path) -> None:
    attr = (Attribute(value=json.dumps(SLICES)),)
    operator(
        tmp_path / "Conv2D.sgt_graph_0_conv_lxslice1.2.9.17.4.481.0.0",
        outputs=[raw(b"o", (1,), 4)],
        attr=attr,
    )
    run = FORMAT.open(tmp_path)
    (call,) = run.rows("calls")
    assert call.name == "sgt_graph_0_conv_lxslice1"
    assert call.context == 481
    assert run.problems == (
        (
            "Conv2D.sgt_graph_0_conv_lxslice1.2.9.17.4.481.0.0: 1 of 2 slices of this operator "
            "are here; each is listed by itself"
        ),
    )


@pytest.mark.parametrize(
    "name",
    [
        "Opdebug.Node_OpDebug.59.1597922031178434",
        "OpDebug.Node_Opdebug.59.3.1597922031178434",
        "Opdebug.Node_OpDebug.59.3.1597922031178434.4.1.0.0",
    ],
)
def test_an_overflow_record_marks_its_operator(name: str, tmp_path: Path) -> None:
    operator(tmp_path / "Mul.mul.57.563.10", outputs=[])
    operator(tmp_path / "Add.add.57.564.9", outputs=[])
    operator(
        tmp_path / name,
        outputs=[raw(classic_record(task=57, stream=563, status=0x110), (2048,), 4)],
    )
    run = FORMAT.open(tmp_path)
    assert [(call.op, call.status) for call in run.rows("calls")] == [("Add", None), ("Mul", 0x110)]
    (told,) = run.info.config["overflow"]
    assert told["units"][0]["unit"] == "AI Core"
    assert told["units"][0]["words"] == [
        "integer add, sub, mul or mac overflow",
        "overflow in a conversion of float32 or int32 to float16",
    ]


def test_context_and_thread_decide_between_sub_tasks(tmp_path: Path) -> None:
    for thread in (0, 1):
        operator(tmp_path / f"Mul.mul{thread}.5.6.1{thread}.4.7.{thread}.0", outputs=[])
    record = modern_record(
        0, model_id=1, stream_id=6, task_id=5, context_id=7, thread_id=1, status=0x20
    )
    operator(tmp_path / "Opdebug.Node_OpDebug.1.2.30", outputs=[raw(record, (len(record),), 4)])
    assert [call.status for call in FORMAT.open(tmp_path).rows("calls")] == [None, 0x20]


def test_an_overflow_whose_operator_was_not_dumped_is_not_lost(tmp_path: Path) -> None:
    operator(tmp_path / "Add.add.1.2.3", outputs=[])
    operator(
        tmp_path / "Opdebug.Node_OpDebug.9.9.9",
        outputs=[raw(classic_record(task=57, stream=563, status=0x20), (2048,), 4)],
    )
    run = FORMAT.open(tmp_path)
    add, lost = run.rows("calls")
    assert add.status is None
    assert (lost.op, lost.task, lost.stream, lost.status) == ("Opdebug", 57, 563, 0x20)
    assert run.tensors_of(lost.process, lost.index) == ()


def test_a_record_of_another_directory_marks_nobody(tmp_path: Path) -> None:
    operator(tmp_path / "0/Mul.mul.57.563.10", outputs=[])
    operator(
        tmp_path / "1/Opdebug.Node_OpDebug.9.9.9",
        outputs=[raw(classic_record(task=57, stream=563, status=0x20), (2048,), 4)],
    )
    calls = FORMAT.open(tmp_path).rows("calls")
    assert [(call.op, call.status) for call in calls] == [("Mul", None), ("Opdebug", 0x20)]


def test_a_record_above_the_models_steps_marks_the_only_one_it_can_mean(tmp_path: Path) -> None:
    """The record lies in the device's directory, its operator below; where two steps have such a
    task, it says neither.
    """
    device, model = tmp_path / "20240101000000/0", "20240101000000/0/net/1"
    operator(tmp_path / model / "0/Mul.mul.57.563.10", outputs=[], op_name="mul", dump_time=1)
    operator(
        device / "Opdebug.Node_OpDebug.9.9.9",
        outputs=[raw(classic_record(task=57, stream=563, status=0x20), (2048,), 4)],
    )
    assert [(call.op, call.status) for call in FORMAT.open(tmp_path).rows("calls")] == [
        ("Mul", 0x20)
    ]
    operator(tmp_path / model / "1/Mul.mul.57.563.11", outputs=[], op_name="mul", dump_time=2)
    assert [(call.op, call.status) for call in FORMAT.open(tmp_path).rows("calls")] == [
        ("Mul", None),
        ("Mul", None),
        ("Opdebug", 0x20),
    ]


def test_a_bad_overflow_record_is_a_problem(tmp_path: Path) -> None:
    operator(tmp_path / "Opdebug.Node_OpDebug.9.9.9", outputs=[raw(bytes(100), (100,), 4)])
    run = FORMAT.open(tmp_path)
    assert run.rows("calls") == ()
    assert len(run.problems) == 1
    assert "2048 bytes" in run.problems[0]


def test_the_tables_are_arrow(real: Path) -> None:
    import nanoarrow

    run = FORMAT.open(real)
    for name, rows in (("calls", 2), ("tensors", 4), ("stacks", 0), ("judgements", 0)):
        assert sum(len(batch) for batch in nanoarrow.ArrayStream(run.table(name))) == rows


def test_an_old_file_with_everything_inside_is_a_run(tmp_path: Path) -> None:
    operator(
        tmp_path / "Add.add.1.2.3",
        outputs=[raw(np.arange(3, dtype=np.float32).tobytes(), (3,), 1)],
        form="inline",
    )
    run = FORMAT.open(tmp_path)
    np.testing.assert_array_equal(run.value(run.rows("tensors")[0]), np.arange(3, dtype=np.float32))


def test_the_registry_knows_it(real: Path) -> None:
    assert open_run(real).info.format == "cann"


def test_detection_looks_at_so_many_files_and_no_more(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number:03}.txt").write_text("")
        (tmp_path / "sub" / str(number)).mkdir(parents=True)
        (tmp_path / "sub" / str(number) / "Op.op.1.2.3").write_text("")
    assert len(list(tree.found(tmp_path))) == 50
    assert list(tree.found(tmp_path, look_at=50)) == []
    assert len(list(tree.found(tmp_path, look_at=60))) < 10
