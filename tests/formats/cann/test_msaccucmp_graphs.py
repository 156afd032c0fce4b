# SPDX-License-Identifier: Apache-2.0
"""opscope-msaccucmp compare with more than one graph: -q, -cf, quantised operators, directories of
graphs, -a.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cann_dumps import dump, operator

from opscope.cli.msaccucmp import main

X = np.random.default_rng(5).standard_normal((1, 2, 3, 4)).astype(np.float32)


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def op(
    name: str,
    inputs: list[str],
    originals: list[str] | None,
    origins: list[tuple[str, int]] | None = None,
    *,
    kind: str = "Op",
    dtype: str = "DT_FLOAT",
    level1: str = "",
) -> dict[str, Any]:
    """An operator of a graph as atc writes it."""
    attributes = (
        []
        if originals is None
        else [{"key": "_datadump_original_op_names", "value": {"list": {"s": originals}}}]
    )
    attributes += [{"key": "_L1_fusion_sub_graph_no", "value": {"s": level1}}] if level1 else []
    descriptions = [
        {
            "dtype": dtype,
            "attr": [
                {"key": "_datadump_origin_name", "value": {"s": origin}},
                {"key": "_datadump_origin_output_index", "value": {"i": index}},
            ],
        }
        for origin, index in origins or []
    ] or [{"dtype": dtype, "attr": []}]  # fmt: skip
    return {
        "name": name,
        "type": kind,
        "input": inputs,
        "attr": attributes,
        "output_desc": descriptions,
    }


def graph(path: Path, *ops: dict[str, Any], name: str = "net") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"graph": [{"name": name, "op": list(ops)}]}))
    return path


def device(folder: Path, *names: str) -> Path:
    """Operators one after the other, each twice what it reads."""
    values = X
    for number, name in enumerate(names, 1):
        following = values * 2
        operator(
            folder / f"Op.{name.replace('/', '_')}.{number}.1.{number}00",
            [_tensor(values)],
            [_tensor(following)],
        )
        values = following
    return folder


def _tensor(values: np.ndarray[Any, Any]) -> Any:
    return dump(values, "NCHW", values.shape)


def truth(folder: Path, **values: np.ndarray[Any, Any]) -> Path:
    folder.mkdir()
    for name, array in values.items():
        np.save(folder / f"{name}.0.1.npy", array)
    return folder


def compared(out: Path) -> dict[str, tuple[str, str]]:
    """Ground truth and largest error of each tensor."""
    (path,) = out.glob("*result_*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["TensorIndex"]: (row["GroundTruth"], row["MaxAbsoluteError"]) for row in rows}


def test_a_quantised_graph_says_what_the_originals_stand_for(tmp_path: Path) -> None:
    mine = device(tmp_path / "npu", "a", "b")
    offline = graph(
        tmp_path / "off.json",
        op("a", [], ["q1"], [("q1", 0)]),
        op("b", ["a:0"], ["q2"], [("q2", 0)]),
    )
    quant = graph(
        tmp_path / "quant.json",
        op("q1", [], ["o1"], [("o1", 0)]),
        op("q2", ["q1:0"], ["o2", "o3"], [("o3", 0)]),
    )
    golden = truth(tmp_path / "gt", o1=X * 2, o3=X * 4, q1=X, q2=X)
    words = ("-m", mine, "-g", golden, "-out", tmp_path / "out", "-alg", "1")
    assert run("compare", *words, "-f", offline, "-q", quant) == 0
    assert compared(tmp_path / "out") == {
        "a:input:0": ("*", "NaN"),
        "a:output:0": ("o1", "0.000000"),
        "b:input:0": ("o1", "0.000000"),
        "b:output:0": ("o3", "0.000000"),
    }


def test_a_quantised_graph_alone_is_taken_like_any_other(tmp_path: Path) -> None:
    quant = graph(tmp_path / "quant.json", op("a", [], ["o1"], [("o1", 0)]))
    words = (
        "-m",
        device(tmp_path / "npu", "a"),
        "-g",
        truth(tmp_path / "gt", o1=X * 2),
        "-out",
        tmp_path / "out",
        "-alg",
        "1",
    )
    assert run("compare", *words, "-q", quant) == 0
    assert compared(tmp_path / "out")["a:output:0"] == ("o1", "0.000000")


def test_what_lies_between_quantisation_and_its_reversal_is_not_compared(tmp_path: Path) -> None:
    names = ("in", "net/AscendQuant", "conv", "net/AscendDequant", "out")
    ops = [
        op("in", [], ["in"], [("in", 0)]),
        op(
            "net/AscendQuant",
            ["in:0"],
            ["net/AscendQuant"],
            [("net/AscendQuant", 0)],
            kind="AscendQuant",
            dtype="DT_INT8",
        ),
        op("conv", ["net/AscendQuant:0"], ["conv"], [("conv", 0)], dtype="DT_INT32"),
        op(
            "net/AscendDequant",
            ["conv:0"],
            ["conv"],
            [("conv", 0)],
            kind="AscendDequant",
            dtype="DT_FLOAT16",
        ),
        op("out", ["net/AscendDequant:0"], ["out"], [("out", 0)]),
    ]
    golden = truth(tmp_path / "gt", **{"in": X * 2, "conv": X * 16, "out": X * 32})
    words = (
        "-m",
        device(tmp_path / "npu", *names),
        "-g",
        golden,
        "-out",
        tmp_path / "out",
        "-alg",
        "1",
    )
    assert run("compare", *words, "-f", graph(tmp_path / "g.json", *ops)) == 0
    assert compared(tmp_path / "out") == {
        "in:input:0": ("*", "NaN"),
        "in:output:0": ("in", "0.000000"),
        "net_AscendQuant:input:0": ("in", "0.000000"),
        "net_AscendDequant:output:0": ("conv", "0.000000"),
        "out:input:0": ("conv", "0.000000"),
        "out:output:0": ("out", "0.000000"),
    }


@pytest.mark.parametrize(
    ("kind", "truth_of_input"),
    [("TransData", "in"), ("Cast", "in"), ("TensorMove", "in"), ("Transpose", "*"), ("Copy", "in")],
)
def test_a_golden_is_looked_for_behind_a_new_operator_that_hands_on(
    kind: str, truth_of_input: str, tmp_path: Path
) -> None:
    ops = [
        op("in", [], ["in"], [("in", 0)]),
        op("new", ["in:0"], [], kind=kind),
        op("out", ["new:0"], ["out"], [("out", 0)]),
    ]
    golden = truth(tmp_path / "gt", **{"in": X * 2, "out": X * 8})
    words = ("-m", device(tmp_path / "npu", "in", "new", "out"), "-g", golden)
    given = ("-out", tmp_path / "out", "-alg", "1", "-f", graph(tmp_path / "g.json", *ops))
    assert run("compare", *words, *given) == 0
    assert compared(tmp_path / "out")["out:input:0"][0] == truth_of_input


def test_a_graph_without_fusion_names_the_operators_of_its_dump(tmp_path: Path) -> None:
    fused = graph(tmp_path / "open.json", op("ab", [], ["a", "b"], [("b", 0)]))
    unfused = graph(
        tmp_path / "closed.json",
        op("A", [], ["a"], [("a", 0)]),
        op("B", ["A:0"], ["b"], [("b", 1), ("b", 0)]),
    )
    golden = tmp_path / "gt"
    operator(golden / "Op.A.1.1.100", [_tensor(X)], [_tensor(X)])
    operator(golden / "Op.B.2.1.200", [_tensor(X)], [_tensor(X * 7), _tensor(X * 2)])
    words = (
        "-m",
        device(tmp_path / "npu", "ab"),
        "-g",
        golden,
        "-out",
        tmp_path / "out",
        "-alg",
        "1",
    )
    assert run("compare", *words, "-f", fused, "-cf", unfused) == 0
    assert compared(tmp_path / "out")["ab:output:0"] == ("B", "0.000000")


def test_a_directory_of_graphs_compares_every_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "20260101120000"
    for model, step in (("one", "3"), ("one", "12"), ("ge_default_20260101120001_7", "0")):
        device(root / "0" / model / "1" / step, "a")
    device(root / "0" / "unknown" / "1" / "0", "a")
    graphs = tmp_path / "graphs"
    graph(graphs / "x.json", op("a", [], ["o1"], [("o1", 0)]), name="one")
    graph(graphs / "y.json", op("a", [], ["o1"], [("o1", 0)]), name="ge_default_20260101120000_7")
    golden = truth(tmp_path / "gt", o1=X * 2)
    assert (
        run(
            "compare", "-m", root, "-g", golden, "-f", graphs, "-out", tmp_path / "out", "-alg", "1"
        )
        == 0
    )
    names = sorted(path.name.rpartition("_")[0] for path in (tmp_path / "out").iterdir())
    assert names == ["0_ge_default_20260101120001_7_0_result", "0_one_12_result"]
    assert "are not of one time" in capsys.readouterr().err


@pytest.mark.parametrize("case", ["no time", "no graph", "no model", "one operator", "broken"])
def test_a_directory_of_graphs_that_does_not_fit_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    root, graphs = tmp_path / ("npu" if case == "no time" else "20260101"), tmp_path / "graphs"
    device(root / "0" / "one" / "1" / "0", "a")
    graphs.mkdir()
    if case != "no graph":
        graph(graphs / "x.json", op("a", [], None), name="two" if case == "no model" else "one")
    if case == "broken":
        (graphs / "x.json").write_text('{"graph": 3}')
    more = ("-op", "a", "-o", "0") if case == "one operator" else ()
    golden = truth(tmp_path / "gt", o1=X * 2)
    code = run("compare", "-m", root, "-g", golden, "-f", graphs, "-out", tmp_path / "out", *more)
    assert code == {"one operator": 6, "broken": 11}.get(case, 3)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CosineSimilarity:max=1,min=0", 0),
        ("CosineSimilarity:max=1;MaxAbsoluteError:a=b;", 0),
        ("", 0),
        ("CosineSimilarity", 6),
        ("CosineSimilarity:max", 6),
        ("Nonsense:a=1", 6),
    ],
)
def test_parameters_of_algorithms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, code: int
) -> None:
    mine = device(tmp_path / "npu", "a")
    assert run("compare", "-m", mine, "-g", mine, "-out", tmp_path / "out", "-a", text) == code
    assert ("it has no parameters" in capsys.readouterr().err) == (code == 0 and bool(text))


SCRIPT = (
    "def compare(mine, golden, args):\n    return '%.2f' % (abs(mine - golden).max() * "
    "float(args.scale)), ''\n"
)


def own(folder: Path, **scripts: str) -> Path:
    (folder / "algorithm").mkdir(parents=True)
    for name, text in scripts.items():
        (folder / "algorithm" / f"alg_{name}.py").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("wanted", "columns"), [(None, 12), ("all", 12), ("Mine", 1), ("0,Mine", 2), ("1", 1)]
)
def test_algorithms_of_the_users_own_are_columns_behind_the_built_in_ones(
    tmp_path: Path, wanted: str | None, columns: int
) -> None:
    mine = device(tmp_path / "npu", "a")
    scripts = own(
        tmp_path / "own",
        Mine=SCRIPT,
        Other="def compare(mine, golden, args):\n    raise ValueError('no')\n",
    )
    words = (
        "-m",
        mine,
        "-g",
        truth(tmp_path / "gt", a=X * 2 + 1),
        "-out",
        tmp_path / "out",
        "-c",
        scripts,
        "-a",
        "Mine:scale=3",
    )
    assert run("compare", *words, *(() if wanted is None else ("-alg", wanted))) == 0
    (path,) = (tmp_path / "out").glob("result_*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    names = header[header.index("Shape") + 1 : -1]
    assert len(names) == columns
    output = next(row for row in rows if "a:output:0" in row)
    if "Mine" in names:
        assert output[header.index("Mine")] == "3.00"
    if "Other" in names:
        assert output[header.index("Other")] == "NaN"
        assert "[Other] ValueError: no" in output[-1]


@pytest.mark.parametrize("text", ["x = (", "import nothing_of_this_name", "y = 1", None])
def test_an_algorithm_that_cannot_be_used_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    scripts = own(tmp_path / "own", **({} if text is None else {"Mine": text}))
    mine = device(tmp_path / "npu", "a")
    assert run("compare", "-m", mine, "-g", mine, "-out", tmp_path / "out", "-c", scripts) == 31
    assert capsys.readouterr().err.count("\n") == 1
