# SPDX-License-Identifier: Apache-2.0
"""opscope-msaccucmp compare and file_compare: options, algorithms, file names and columns of the
manuals.
"""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np
import pytest
from cann_dumps import dump, operator

from opscope.cli.msaccucmp import main
from opscope.formats.cann import algorithms
from opscope.formats.cann.message import Attribute

RNG = np.random.default_rng(0)
FEATURE = RNG.standard_normal((1, 2, 3, 4)).astype(np.float32)


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def tensor(values: np.ndarray) -> Any:
    return dump(values, "NCHW", values.shape)


def table(directory: Path, pattern: str = "result_*.csv") -> tuple[list[str], list[list[str]]]:
    (path,) = directory.glob(pattern)
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return header, rows


def dumps(folder: Path, off: float = 0.0) -> Path:
    """Three operators: Relu of the feature, twice as much, and its square; the second is off by a
    share.
    """
    operator(folder / "Relu.net_relu.1.2.100", [tensor(FEATURE)], [tensor(np.maximum(FEATURE, 0))])
    operator(
        folder / "Mul.net_mul.2.2.200",
        [tensor(np.maximum(FEATURE, 0))],
        [tensor(np.maximum(FEATURE, 0) * np.float32(2 + off))],
    )
    operator(folder / "Square.net_square.3.2.300", [tensor(FEATURE)], [tensor(FEATURE**2)])
    return folder


def ground_truth(folder: Path) -> Path:
    folder.mkdir()
    for name, values in (
        ("net_relu", np.maximum(FEATURE, 0)),
        ("net_mul", np.maximum(FEATURE, 0) * 2),
        ("net_square", FEATURE**2),
    ):
        np.save(folder / f"{name}.0.1234.npy", values)
    return folder


def test_two_dumps_are_joined_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, golden = dumps(tmp_path / "npu", off=0.5), dumps(tmp_path / "gpu")
    assert run("compare", "-m", mine, "-g", golden, "-out", tmp_path / "out") == 0
    header, rows = table(tmp_path / "out")
    plain = [
        "Index",
        "OpType",
        "NPUDump",
        "DataType",
        "Address",
        "GroundTruth",
        "DataType",
        "Address",
        "TensorIndex",
        "Shape",
    ]
    assert header == [*plain, *algorithms.NAMES, "CompareFailReason"]
    assert [row[8] for row in rows] == [
        f"net_{name}:{io}:0" for name in ("relu", "mul", "square") for io in ("input", "output")
    ]
    assert [row[0] for row in rows] == ["1", "1", "2", "2", "3", "3"]
    mul = rows[3]
    assert (mul[1], mul[3], mul[5], mul[9]) == ("Mul", "float32", "net_mul", "[1,2,3,4]")
    assert (mul[10], mul[13]) == ("1.000000", "0.250000")
    assert rows[1][10:13] == ["1.000000", "0.000000", "0.000000"]
    assert "6 tensors, 6 of them compared by every algorithm" in capsys.readouterr().out


def test_ground_truth_in_npy_files_has_outputs_and_no_addresses(tmp_path: Path) -> None:
    mine, golden = dumps(tmp_path / "npu"), ground_truth(tmp_path / "gt")
    assert (
        run(
            "compare",
            "-m",
            mine,
            "-g",
            golden,
            "-out",
            tmp_path / "out",
            "-alg",
            "0,MaxAbsoluteError",
        )
        == 0
    )
    header, rows = table(tmp_path / "out")
    names = [
        "OpType",
        "NPUDump",
        "DataType",
        "Address",
        "GroundTruth",
        "DataType",
        "TensorIndex",
        "Shape",
    ]
    assert header == ["Index", *names, "CosineSimilarity", "MaxAbsoluteError", "CompareFailReason"]
    outputs = [row for row in rows if ":output:" in row[7]]
    assert [row[9:11] for row in outputs] == [["1.000000", "0.000000"]] * 3
    inputs = [row for row in rows if ":input:" in row[7]]
    assert {(row[5], row[9], row[11]) for row in inputs} == {
        ("*", "NaN", "this operator or input has no ground truth")
    }


def fusion(path: Path) -> Path:
    def op(
        name: str,
        kind: str,
        inputs: list[str],
        originals: list[str] | None,
        origin: tuple[str, int] | None,
    ) -> dict[str, Any]:
        attributes = (
            []
            if originals is None
            else [{"key": "_datadump_original_op_names", "value": {"list": {"s": originals}}}]
        )
        said = (
            []
            if origin is None
            else [
                {"key": "_datadump_origin_name", "value": {"s": origin[0]}},
                {"key": "_datadump_origin_output_index", "value": {"i": origin[1]}},
            ]
        )
        return {
            "name": name,
            "type": kind,
            "input": inputs,
            "attr": attributes,
            "output_desc": [{"attr": said}],
        }

    graph = [
        op("x", "Data", [], None, None),
        op("net/relu", "Relu", ["x:0", "x:-1"], ["model/relu"], ("model/relu", 0)),
        op("net/mul", "Mul", ["net/relu:0"], ["model/a", "model/b"], ("model/b", 0)),
        op("net/square", "Square", ["x:0"], [], None),
    ]
    path.write_text(json.dumps({"graph": [{"name": "net", "op": graph}]}))
    return path


def test_a_graph_names_the_originals_and_serves_inputs(tmp_path: Path) -> None:
    mine, golden = dumps(tmp_path / "npu"), tmp_path / "gt"
    golden.mkdir()
    np.save(golden / "model_relu.0.1.npy", np.maximum(FEATURE, 0))
    np.save(golden / "model_b.0.1.npy", np.maximum(FEATURE, 0) * 2)
    np.save(golden / "x.0.1.npy", FEATURE + 1)
    np.save(golden / "x.0.2.npy", FEATURE)
    assert (
        run(
            "compare",
            "-m",
            mine,
            "-g",
            golden,
            "-f",
            fusion(tmp_path / "net.json"),
            "-out",
            tmp_path / "out",
            "-alg",
            "1",
        )
        == 0
    )
    _, rows = table(tmp_path / "out")
    assert [(row[5], row[9]) for row in rows] == [
        ("x", "0.000000"),
        ("model/relu", "0.000000"),
        ("model/relu", "0.000000"),
        ("model/b", "0.000000"),
        ("x", "0.000000"),
        ("*", "NaN"),
    ]


def test_options_of_the_table(tmp_path: Path) -> None:
    mine, golden = dumps(tmp_path / "npu", off=-2.0), dumps(tmp_path / "gpu")
    given = ("-m", mine, "-g", golden, "-out", tmp_path / "out", "-alg", "all")
    assert (
        run(
            "compare",
            *given,
            "-r",
            "2,-1,1",
            "-overflow_detection",
            "-map",
            "-p",
            "1",
            "-advisor",
            "-max",
            "3",
        )
        == 0
    )
    header, rows = table(tmp_path / "out")
    assert (header[1], header[header.index("Shape") + 1]) == ("OpSequence", "OverFlow")
    assert {row[1] for row in rows} == {"2", "3"}
    mapped, paths = table(tmp_path / "out", "mapping_*.csv")
    assert mapped == [
        "Index",
        "OpType",
        "NPUDump",
        "GroundTruth",
        "TensorIndex",
        "NPUDumpPath",
        "GroundTruthPath",
    ]
    assert paths[0][5:] == [str(mine / "Mul.net_mul.2.2.200"), str(golden / "Mul.net_mul.2.2.200")]
    _, filtered = table(tmp_path / "out", "filtered_result.csv")
    assert [row[9] for row in filtered] == ["net_mul:output:0"]
    assert "all elements of my output are 0" in filtered[0][-1]
    assert (
        (tmp_path / "out" / "advisor_summary.txt")
        .read_text()
        .startswith("Detection Type: Global Consistency\nOperator Index: NA\n")
    )


def test_overflow_is_seen_and_advised(tmp_path: Path) -> None:
    half = np.array([1, 65504, 2], np.float16)
    mine = operator(tmp_path / "npu" / "Exp.e.1.2.3", outputs=[dump(half, "ND", half.shape)]).parent
    assert (
        run(
            "compare",
            "-m",
            mine,
            "-g",
            mine,
            "-out",
            tmp_path / "o",
            "-overflow_detection",
            "-advisor",
        )
        == 0
    )
    header, rows = table(tmp_path / "o")
    assert rows[0][header.index("OverFlow")] == "YES"
    assert (
        "FP16 Overflow\nOperator Index: 1" in (tmp_path / "o" / "advisor_summary.txt").read_text()
    )


def test_an_operator_in_slices_is_told_and_not_compared_in_part(tmp_path: Path) -> None:
    cut = {"threadMode": 0, "slice_instance_num": 2, "outputCutList": [[1, 2, 1, 1]]}
    attr = (Attribute(name="x", value=json.dumps(cut)),)
    for number, part in enumerate(np.split(FEATURE, 2, axis=1)):
        name = f"part0_sgt_graph_0_conv_lxslice{number}"
        operator(
            tmp_path / "npu" / f"Conv2D.{name}.2.9.17.4.48{number}.0.0",
            outputs=[tensor(part)],
            op_name=name,
            attr=attr,
        )
    assert (
        run("compare", "-m", tmp_path / "npu", "-g", tmp_path / "npu", "-out", tmp_path / "o") == 0
    )
    ((*cells, reason),) = table(tmp_path / "o")[1]
    assert (cells[2], set(cells[10:])) == ("conv", {"NaN"})
    assert "2 slices" in reason


def test_elements_of_one_tensor(tmp_path: Path) -> None:
    mine, golden = dumps(tmp_path / "npu", off=0.5), ground_truth(tmp_path / "gt")
    assert (
        run(
            "compare",
            "-m",
            mine,
            "-g",
            golden,
            "-out",
            tmp_path / "out",
            "-op",
            "net/mul",
            "-o",
            0,
            "-n",
            2,
        )
        == 0
    )
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    stem = "net_mul_output_0"
    assert names == [
        f"{stem}_{end}"
        for end in ("0.csv", "absolute_error_topn.csv", "relative_error_topn.csv", "summary.txt")
    ]
    header, rows = table(tmp_path / "out", f"{stem}_0.csv")
    assert header == [
        "Index",
        "N C H W",
        "NPUDump",
        "GroundTruth",
        "AbsoluteError",
        "RelativeError",
    ]
    assert (len(rows), rows[5][1]) == (24, "0 0 1 1")
    top = table(tmp_path / "out", f"{stem}_absolute_error_topn.csv")[1]
    largest = float(np.max(np.maximum(FEATURE, 0)) * 0.5)
    assert (len(top), top[0][4]) == (2, f"{largest:.6f}\t")
    assert "TotalCount:24" in (tmp_path / "out" / f"{stem}_summary.txt").read_text()
    assert run("compare", "-m", mine, "-g", golden, "-op", "nobody", "-o", 0) == 2
    assert run("compare", "-m", mine, "-g", golden, "-op", "net_mul", "-o", 7) == 12
    assert run("compare", "-m", mine, "-g", golden, "-op", "net_mul", "-o", 0, "-n", 0) == 6


def test_file_compare_says_and_writes_the_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "m.npy", np.array([1, 2, 4], np.float16))
    np.save(tmp_path / "g.npy", np.array([1, 2, 3], np.float32))
    assert (
        run(
            "file_compare",
            "-m",
            tmp_path / "m.npy",
            "-g",
            tmp_path / "g.npy",
            "-out",
            tmp_path / "out",
        )
        == 0
    )
    (path,) = (tmp_path / "out").glob("file_result_*.txt")
    text = path.read_text()
    assert "MaxAbsoluteError: 1.000000\n" in text
    assert f"RootMeanSquareError: {math.sqrt(1 / 3):.6f}\n" in text
    assert text in capsys.readouterr().out
    assert run("compare", "-m", tmp_path / "m.npy", "-g", tmp_path / "g.npy", "-alg", "3") == 0
    assert capsys.readouterr().out == f"RelativeEuclideanDistance: {1 / math.sqrt(14):.6f}\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["-m", "{mine}", "-g", "{none}"], 3),
        (["-m", "{none}", "-g", "{mine}"], 3),
        (["-m", "{empty}", "-g", "{mine}"], 2),
        (["-m", "{mine}", "-g", "{empty}"], 2),
        (["-m", "{mine}", "-g", "{mine}", "-alg", "17"], 6),
        (["-m", "{mine}", "-g", "{mine}", "-r", "9,1,1"], 6),
        (["-m", "{mine}", "-g", "{mine}", "-s", "0"], 6),
        (["-m", "{mine}", "-g", "{mine}", "-r", "1,2", "-s", "1"], 6),
        (["-m", "{mine}", "-g", "{mine}", "-c", "x"], 3),
        (["-m", "{mine}", "-g", "{mine}", "-f", "{empty}"], 3),
        (["-m", "{mine}", "-g", "{mine}", "-f", "{none}"], 3),
        (["-m", "a.h5", "-g", "b.h5"], 6),
    ],
)
def test_what_cannot_be_compared_ends_with_its_code(
    arguments: list[str], code: int, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    places = {
        "mine": dumps(tmp_path / "npu"),
        "none": tmp_path / "none",
        "empty": tmp_path / "empty",
    }
    assert run("compare", *(word.format(**places) for word in arguments)) == code
    assert capsys.readouterr().err.count("\n") == 1


def answers(mine: Any, golden: Any, dtype: str = "float32") -> list[str]:
    which = tuple(range(10))
    return [
        one.text
        for one in algorithms.compute(
            np.asarray(mine).astype(dtype), np.asarray(golden).astype(dtype), which
        )
    ]


def test_algorithms_as_documented() -> None:
    assert answers([0, 0], [0, 0])[:4] == ["1.000000", "0.000000", "0.000000", "0.000000"]
    assert answers([0, 0], [1, 2])[0] == "NaN"
    assert answers([3], [-3])[0] == "1.000000"  # one element counts as alike
    assert answers([1, 5], [0, 4])[2] == "0.250000"  # a golden of 0 is left out
    assert answers([1, 5], [0, 4])[8:] == ["0.250000", "0.125000"]
    assert answers([1, 3], [0, 0])[3] == "0.000000"
    assert answers([1, 2, 3], [1, 2, 3])[5] == "(2.000;0.816),(2.000;0.816)"
    assert (
        answers([0, 1], [1, 0])[4]
        == f"{(1 - 1.19e-7) * math.log(1 / 1.1920929e-7):.6f}"[:6] + answers([0, 1], [1, 0])[4][6:]
    )
    assert answers([True, False], [True, True], "bool") == [
        "0.707107",
        "NaN",
        "NaN",
        "0.707107",
        *["NaN"] * 6,
    ]
    assert answers([1, np.nan], [1, 2]) == ["NaN"] * 10
    assert answers([1, 2], [1, 2, 3]) == ["NaN"] * 10
    assert answers([], []) == ["NaN"] * 10


def test_cells_cannot_be_formulas(tmp_path: Path) -> None:
    operator(tmp_path / "npu" / "Add.a.1.2.3", outputs=[tensor(FEATURE)], op_name="=cmd()")
    assert (
        run("compare", "-m", tmp_path / "npu", "-g", tmp_path / "npu", "-out", tmp_path / "o") == 0
    )
    assert table(tmp_path / "o")[1][0][2] == "'=cmd()"
