# SPDX-License-Identifier: Apache-2.0
"""Synthetic trees: every layout of the documentation, and what the real dumps do not show."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from ms_dumps import IR, calls, named, put, rows, sync, write_graph

from opscope.errors import FormatError, MissingValueError
from opscope.formats.cann import dumpfile
from opscope.formats.cann.message import DumpData, Shape, TensorEntry
from opscope.formats.mindspore import FORMAT
from opscope.formats.registry import open_run
from opscope.narrow import dtype

ONES = np.ones((2, 3), np.float32)
HEADER = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max "
    "Value,Min Value,L2Norm Value\n"
)
TIME = 1_700_000_000_000_000


def test_constants_and_parameters_without_a_graph(tmp_path: Path) -> None:
    """They hang on a call of the graph, since no kernel is known to read them."""
    put(sync(tmp_path), f"Add.Default_Add-op0.0.0.{TIME}.output.0.DefaultFormat.npy", ONES)
    put(sync(tmp_path), f"Parameter.fc_weight.0.0.{TIME}.output.0.DefaultFormat.npy", ONES * 2)
    put(
        sync(tmp_path).parent / "constants",
        f"Parameter.data-7.0.0.{TIME}.output.0.DefaultFormat.npy",
        ONES * 3,
    )
    run = FORMAT.open(tmp_path)
    assert [(call.op, call.level) for call in calls(run)] == [
        ("KernelGraph", "module"),
        ("Add", "operator"),
        ("KernelGraph", "module"),
    ]
    constant, parameter = calls(run)[0], calls(run)[2]
    (row,) = rows(run, constant).values()
    assert (row.role, row.tensor_name, row.max) == ("constant", "data-7", 3.0)
    (row,) = rows(run, parameter).values()
    assert (row.role, row.tensor_name, row.max) == ("parameter", "fc_weight", 2.0)


def test_one_or_two_numbers_and_no_type_in_names(tmp_path: Path) -> None:
    folder = sync(tmp_path)
    put(folder, f"Add.Default_Add-op0.3.4.{TIME}.input.0.0.DefaultFormat.npy", ONES)
    put(folder, f"Add.Default_Add-op0.3.4.{TIME}.input.1.0.DefaultFormat.Float32.npy", ONES)
    put(folder, f"Add.Default_Add-op0.3.4.{TIME}.output.0.DefaultFormat.npy", ONES)
    put(folder, f"Split.Default_Split-op0.65535.65535.{TIME}.output.0.0.NCHW.npy", ONES)
    put(folder, f"Split.Default_Split-op0.65535.65535.{TIME}.output.0.1.NCHW.npy", ONES)
    run = FORMAT.open(tmp_path)
    add, split = named(run, "Add-op0"), named(run, "Split-op0")
    assert (add.task, add.stream) == (3, 4)
    assert (split.task, split.stream) == (None, None)
    assert set(rows(run, add)) == {("input", "0"), ("input", "1"), ("output", "0")}
    assert set(rows(run, split)) == {("output", "0.0"), ("output", "0.1")}
    assert rows(run, split)["output", "0.0"].layout == "NCHW"


def test_bfloat16_lies_as_float32_and_is_brought_back(tmp_path: Path) -> None:
    values = np.array([1.5, -2.0, np.inf], dtype=ml_dtypes.bfloat16)
    put(
        sync(tmp_path),
        f"Add.Default_Add-op0.0.0.{TIME}.output.0.DefaultFormat.BFloat16.npy",
        values.astype(np.float32),
    )
    run = FORMAT.open(tmp_path)
    row = rows(run, named(run, "Add-op0"))["output", "0"]
    assert (row.dtype, row.pos_inf) == ("bfloat16", 1)
    assert run.value(row).dtype == dtype("bfloat16")


def test_ranks_graphs_and_graphs_without_data(tmp_path: Path) -> None:
    for rank in (0, 3):
        put(
            sync(tmp_path, rank=rank, graph=1),
            f"Mul.Default_net-Net_fc-Dense_Mul-op0.0.0.{TIME}.output.0.DefaultFormat.Float32.npy",
            ONES,
        )
        write_graph(tmp_path, rank=rank, graph=0)
        write_graph(tmp_path, rank=rank, graph=1)
    run = FORMAT.open(tmp_path)
    assert [(call.process, call.rank, call.name) for call in calls(run)] == [
        (0, 0, "Default/net-Net/fc-Dense/Mul-op4"),
        (1, 3, "Default/net-Net/fc-Dense/Mul-op4"),
    ]
    assert run.problems == ()
    assert {process.rank for process in run.processes} == {0, 3}


def test_strings_are_listed_without_value(tmp_path: Path) -> None:
    write_graph(tmp_path, IR)
    put(
        sync(tmp_path),
        f"Print.Default_Print-op0.0.0.{TIME}.input.1.DefaultFormat.Float32.npy",
        ONES,
    )
    put(
        sync(tmp_path),
        f"Add.Default_Add-op9.0.0.{TIME}.input.0.DefaultFormat.npy",
        np.array(["a", "b"]),
    )
    run = FORMAT.open(tmp_path)
    row = rows(run, named(run, "Print-op0"))["input", "0"]
    assert (row.dtype, row.value, row.size) == ("string", None, None)
    row = rows(run, named(run, "Add-op9"))["input", "0"]
    assert (row.dtype, row.shape, row.value) == ("string", (2,), None)
    assert run.problems == ()


def test_kernel_arguments_go_into_args(tmp_path: Path) -> None:
    """Their file carries the graph's number (op4), the tensors' files another (op0)."""
    write_graph(tmp_path, IR)
    folder = sync(tmp_path)
    put(
        folder,
        f"Mul.Default_net-Net_fc-Dense_Mul-op0.0.0.{TIME}.output.0.DefaultFormat.Float32.npy",
        ONES,
    )
    (folder / "Mul.Default_net-Net_fc-Dense_Mul-op4.json").write_text(
        json.dumps({"axis": "(1, 2)", "eps": "1e-05", "mode": "same"})
    )
    (folder / "Add.Default_Add-op1.json").write_text("[1]")
    run = FORMAT.open(tmp_path)
    assert json.loads(named(run, "Mul-op4").args or "")["kwargs"] == {
        "visited": True,
        "axis": [1, 2],
        "eps": 1e-05,
        "mode": "same",
    }
    assert [problem for problem in run.problems if "not a JSON object" in problem]


def test_statistic_csv_alone(tmp_path: Path) -> None:
    """Columns in any order, case and spacing; lines that make no sense become problems."""
    folder = sync(tmp_path)
    folder.mkdir(parents=True)
    lines = [
        (
            " shape , op type,OP NAME,Task Id,stream id,timestamp,io,slot,data size,Data  "
            "Type,max value,min value,negative zero count,nan count"
        ),
        f'"(2,3)",Mul,Default/a-B/Mul-op3,1,2,{TIME},input,0,24,float32,3,-1,2,0',
        f'"(2,3)",Mul,Default/a-B/Mul-op3,1,2,{TIME},output,0,24,float32,nan,nan,0,4',
        f'"(2,3)",Mul,Default/a-B/Mul-op3,1,2,{TIME},neither,0,24,float32,1,1,0,0',
        '"(2',
    ]
    (folder / "statistic.csv").write_text("\n".join(lines))
    run = FORMAT.open(tmp_path)
    (call,) = calls(run)
    assert (call.name, call.phase, call.module, call.task) == (
        "Default/a-B/Mul-op3",
        "forward",
        "a",
        1,
    )
    held = rows(run, call)
    row = held["input", "0"]
    assert (row.dtype, row.shape, row.size, row.max, row.min, row.neg, row.nan) == (
        "float32",
        (2, 3),
        6,
        3.0,
        -1.0,
        2,
        0,
    )
    row = held["output", "0"]
    assert (row.max, row.min, row.nan, row.value) == (None, None, 4, None)
    assert len(run.problems) == 2
    assert "statistic.csv:4" in run.problems[0]


def test_statistics_beside_tensors_are_measured_from_the_tensors(tmp_path: Path) -> None:
    folder = sync(tmp_path)
    put(folder, f"Mul.Default_Mul-op0.0.0.{TIME}.output.0.DefaultFormat.Float32.npy", ONES)
    (folder / "statistic.csv").write_text(
        HEADER + f'Mul,Default/Mul-op0,0,0,{TIME},output,0,24,float32,"(2,3)",9,9,9\n'
    )
    run = FORMAT.open(tmp_path)
    (call,) = calls(run)
    assert call.name == "Default/Mul-op0"
    assert rows(run, call)["output", "0"].max == 1.0


def test_long_names_come_from_the_mapping(tmp_path: Path) -> None:
    folder = sync(tmp_path)
    long = f"Mul.{'Default_' + 'x' * 300}_Mul-op0.0.0.{TIME}.output.0.DefaultFormat.Float32"
    put(folder, "73298123.npy", ONES)
    (folder / "mapping.csv").write_text(f"73298123,{long}\n../../etc/passwd,../../x\nlonely\n")
    run = FORMAT.open(tmp_path)
    (call,) = calls(run)
    assert call.op == "Mul"
    assert rows(run, call)["output", "0"].max == 1.0
    assert len(run.problems) == 1


def test_a_kernel_in_a_loop_is_several_calls(tmp_path: Path) -> None:
    for turn in range(3):
        for io in ("input", "output"):
            put(
                sync(tmp_path),
                f"Mul.Default_Mul-op0.0.0.{TIME + turn * 10}.{io}.0.DefaultFormat.Float32.npy",
                ONES * turn,
            )
    run = FORMAT.open(tmp_path)
    assert [call.name for call in calls(run)] == [
        "Default_Mul-op0",
        "Default_Mul-op0#2",
        "Default_Mul-op0#3",
    ]
    assert [rows(run, call)["output", "0"].max for call in calls(run)] == [0.0, 1.0, 2.0]


def _dumped(path: Path, name: str, values: np.ndarray) -> None:
    path.mkdir(parents=True, exist_ok=True)
    entry = TensorEntry(data_type=1, format=2, shape=Shape(dim=values.shape), size=values.nbytes)
    dumpfile.write(
        path / name, DumpData(version="2.0", dump_time=TIME, output=(entry,)), [values.tobytes()]
    )


def test_graphs_that_take_turns_come_in_the_order_of_time(tmp_path: Path) -> None:
    """A loop: the condition is one graph, the body another, and each step of it runs both."""
    times = {"0": ((0, 1),), "1": ((0, 2), (0, 4), (0, 6)), "2": ((0, 3), (0, 5)), "3": ((0, 7),)}
    for graph, runs in times.items():
        for number, time in runs:
            name = (
                f"Op{graph}.Default_Op{graph}-op{number}.0.0.{TIME + time}"
                ".output.0.DefaultFormat.Float32.npy"
            )
            put(sync(tmp_path, graph=int(graph)), name, ONES * time)
    run = FORMAT.open(tmp_path)
    found = calls(run)
    assert [call.op for call in found] == ["Op0", "Op1", "Op2", "Op1", "Op2", "Op1", "Op3"]
    assert [call.index for call in found] == list(range(7))
    assert [rows(run, call)["output", "0"].max for call in found] == [1, 2, 3, 4, 5, 6, 7]


def test_the_plain_asynchronous_tree(tmp_path: Path) -> None:
    """{time}/{device}/{model}/{model_id}/{iteration}: npy files, statistics, an overflow record as
    json.
    """
    folder = tmp_path / "20240101120000" / "5" / "ge_default" / "1" / "7"
    put(folder, f"Mul.Default_Mul-op0.2.9.{TIME}.output.0.ND.npy", ONES)
    (folder / "statistic.csv").write_text(HEADER)
    record = {
        "AI Core": {"task_id": 2, "stream_id": 9, "status": 32},
        "DHA Atomic Add": {"task_id": 0, "stream_id": 0, "status": 0},
    }
    (folder / f"Opdebug.Node_OpDebug.2.9.{TIME}.output.0.json").write_text(json.dumps(record))
    run = open_run(tmp_path)
    assert run.info.format == "mindspore"
    (call,) = calls(run)
    assert (call.rank, call.step, call.device, call.status) == (5, 7, "npu:5", 0x20)
    assert rows(run, call)["output", "0"].max == 1.0


def test_an_overflow_whose_kernel_was_not_dumped_is_not_silent(tmp_path: Path) -> None:
    folder = tmp_path / "20240101120000" / "0" / "model" / "1" / "0"
    put(folder, f"Mul.Default_Mul-op0.2.9.{TIME}.output.0.ND.npy", ONES)
    (folder / f"OpDebug.Node_Opdebug.5.9.{TIME}.output.0.json").write_text(
        '{"AI Core": {"task_id": 5, "stream_id": 9, "status": "0x20"}}'
    )
    (folder / f"Opdebug.Node_OpDebug.6.9.{TIME}.output.0.json").write_text('{"AI Core"')
    run = FORMAT.open(tmp_path)
    assert [(call.op, call.status) for call in calls(run)] == [("Mul", None), ("Opdebug", 0x20)]
    assert len(run.problems) == 1


def test_the_tree_with_the_users_steps(tmp_path: Path) -> None:
    """{step}/{time}/… : the user's step counts, the iteration below is GE's; the acl json in the
    way is none of ours.
    """
    for step, time in ((3, "20240101120000"), (4, "20240101120001")):
        folder = tmp_path / str(step) / time / "0" / "model" / "1" / "0"
        put(folder, f"Mul.Default_Mul-op0.65535.65535.{TIME}.output.0.ND.npy", ONES * step)
    (tmp_path / "acl_dump_0.json").write_text('{"dump": {}}')
    run = FORMAT.open(tmp_path)
    assert [(call.step, call.task) for call in calls(run)] == [(3, None), (4, None)]
    assert len(run.processes) == 1
    assert run.problems == ()


def test_single_operators_lie_in_the_device_folder(tmp_path: Path) -> None:
    """aclop: type first; aclnn: name first; ReduceSum-like communication in the iteration
    folder.
    """
    device = tmp_path / "2" / "20240101120000" / "0"
    _dumped(device, f"Mul.Mul_1.3.4.{TIME}", ONES)
    _dumped(device, f"aclnnAdd_1_L0.Add.3.5.{TIME + 1}", ONES * 2)
    put(device, f"Sub.Sub_2.3.6.{TIME + 2}.output.0.ND.npy", ONES * 3)
    _dumped(device / "model" / "1" / "0", f"ReduceSum.hcom_1.7.4.{TIME + 3}", ONES * 4)
    (device / "statistic.csv").write_text(HEADER)
    run = FORMAT.open(tmp_path)
    assert [(call.op, call.name, call.step) for call in calls(run)] == [
        ("Mul", "Mul_1", 2),
        ("Add", "aclnnAdd_1_L0", 2),
        ("Sub", "Sub_2", 2),
        ("ReduceSum", "hcom_1", 2),
    ]
    assert [rows(run, call)["output", "0"].max for call in calls(run)] == [1.0, 2.0, 3.0, 4.0]
    first = rows(run, calls(run)[0])["output", "0"]
    assert np.array_equal(run.value(first), ONES)


def test_two_launches_without_steps_are_two_processes(tmp_path: Path) -> None:
    for time in ("20240101120000", "20240101130000"):
        put(
            tmp_path / time / "0" / "model" / "1" / "0",
            f"Mul.Default_Mul-op0.1.1.{TIME}.output.0.ND.npy",
            ONES,
        )
    run = FORMAT.open(tmp_path)
    assert [(call.process, call.rank, call.step) for call in calls(run)] == [(0, 0, 0), (1, 0, 0)]


def test_a_dump_that_was_killed(tmp_path: Path) -> None:
    """An iteration without its last files, one file cut short: the rest is whole."""
    folder = sync(tmp_path)
    put(folder, f"Mul.Default_Mul-op0.0.0.{TIME}.output.0.DefaultFormat.Float32.npy", ONES)
    torn = put(
        folder, f"Mul.Default_Mul-op1.0.0.{TIME + 1}.output.0.DefaultFormat.Float32.npy", ONES
    )
    torn.write_bytes(torn.read_bytes()[:-4])
    run = FORMAT.open(tmp_path)
    assert [rows(run, call)["output", "0"].max for call in calls(run)] == [1.0, None]
    assert [
        problem.endswith("at byte 148: cut short: 20 of 24 bytes of values")
        for problem in run.problems
    ] == [True]
    with pytest.raises(MissingValueError):
        run.value(rows(run, calls(run)[1])["output", "0"])


def test_numbers_beyond_any_column_are_no_data_folders(tmp_path: Path) -> None:
    put(
        tmp_path / "rank_0" / "Net" / "0" / "99999999999",
        f"Mul.Mul-op0.0.0.{TIME}.output.0.ND.npy",
        ONES,
    )
    assert not FORMAT.detect(tmp_path)
    with pytest.raises(FormatError, match="no data folder"):
        FORMAT.open(tmp_path)
    assert open_run(tmp_path).info.format == "arrays"


def test_statistics_alone_at_both_levels_of_an_acl_dump(tmp_path: Path) -> None:
    """aclop and aclnn kernels in the device folder, whose name comes first; communication in the
    iteration folder below it.
    """
    device = tmp_path / "2" / "20240101120000" / "0"
    iteration = device / "model" / "1" / "0"
    iteration.mkdir(parents=True)
    lines = (
        f'Mul,Mul_1,3,4,{TIME},output,0,24,float32,"(2,3)",9,-1,4',
        f'aclnnAdd_1_L0,Add,3,5,{TIME + 1},output,0,24,float32,"(2,3)",5,-1,4',
    )
    (device / "statistic.csv").write_text(HEADER + "\n".join(lines) + "\n")
    (iteration / "statistic.csv").write_text(
        HEADER + f'ReduceSum,hcom_1,7,4,{TIME + 2},output,0,24,float32,"(2,3)",7,-1,4\n'
    )
    put(device, f"aclnnSub_2_L0.Sub.3.6.{TIME + 3}.output.0.ND.npy", ONES)
    run = FORMAT.open(tmp_path)
    found = {
        (call.op, call.name, call.step, rows(run, call)["output", "0"].max) for call in calls(run)
    }
    assert found == {
        ("Mul", "Mul_1", 2, 9.0),
        ("Add", "aclnnAdd_1_L0", 2, 5.0),
        ("Sub", "aclnnSub_2_L0", 2, 1.0),
        ("ReduceSum", "hcom_1", 2, 7.0),
    }
    assert run.problems == ()


@pytest.mark.parametrize(
    ("columns", "values", "signs"),
    [
        (
            "neg,pos,nan,neg_inf,pos_inf,zero,count",
            "3,2,0,1,2,1,6",
            (2, 0),
        ),  # below and above zero, infinities too, as the manual says
        (
            "neg,pos,nan,neg_inf,pos_inf,zero,count",
            "1,1,0,1,2,1,6",
            (1, 1),
        ),  # a writer that leaves them out: the counts add up
        ("neg,pos", "3,2", (None, None)),  # nobody counted the infinities
        ("neg,pos,neg_inf,pos_inf", "3,2,0,2", (3, 0)),
        ("neg,pos,max,min", "3,2,5,-5", (3, 2)),  # extremes over all elements: there is none
        ("neg,pos,max,min", "3,2,inf,-5", (3, None)),
    ],
)
def test_signs_are_counted_among_finite_elements(
    columns: str, values: str, signs: tuple[int | None, int | None], tmp_path: Path
) -> None:
    words = {"neg": "Negative Zero Count", "pos": "Positive Zero Count", "nan": "NaN Count",
        "neg_inf": "Negative Inf Count",
             "pos_inf": "Positive Inf Count", "zero": "Zero Count", "count": "Count",
             "max": "Max Value", "min": "Min Value"}  # fmt: skip
    folder = sync(tmp_path)
    folder.mkdir(parents=True)
    head = (
        "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,"
        + ",".join(words[name] for name in columns.split(","))
    )
    (folder / "statistic.csv").write_text(
        f'{head}\nMul,Default/Mul-op0,0,0,{TIME},output,0,24,float32,"(2,3)",{values}\n'
    )
    run = FORMAT.open(tmp_path)
    row = rows(run, calls(run)[0])["output", "0"]
    assert (row.neg, row.pos) == signs


@pytest.mark.parametrize("folder", [".", "graphs", "rank_0"])
def test_a_graph_that_save_graphs_wrote_is_read_where_it_lies_beside_the_dump(
    tmp_path: Path, folder: str
) -> None:
    """MindSpore 2.10 names it by the number of the pass and without a suffix; which graph it is
    stands in its first line.
    """
    put(
        sync(tmp_path),
        "Mul.Default_net-Net_fc-Dense_Mul-op4.0.0.1.output.0.DefaultFormat.Float32.npy",
        np.ones((2, 3), np.float32),
    )
    assert [call.source for call in calls(open_run(tmp_path))] == [None]
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "trace_code_graph_0126").write_text(
        IR.replace("@kernel_graph0", "@kernel_graph7")
    )
    assert [call.source for call in calls(open_run(tmp_path))] == [None]
    (tmp_path / folder / "trace_code_graph_0127").write_text(IR)
    assert [call.source for call in calls(open_run(tmp_path))] == ["/home/me/net.py:31"]
