# SPDX-License-Identifier: Apache-2.0
"""What a hostile run holds must neither become code, markup nor a terminal's commands, nor leave
the folder.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.repro.single_calls import call_row, record, run_of, run_script

import opscope.repro
from opscope.errors import OpscopeError, UsageError
from opscope.repro.arguments import call_code, parse_arguments
from opscope.repro.case import RaisedError
from opscope.repro.form_torch import BEGIN, END, script

EVIL = [
    '"); __import__("os").system("touch PWNED"); ("',
    "'''\n\"\"\"\nimport os; os.system('touch PWNED')\n",
    "# --- end of the call ---\nraise SystemExit(0)\n",
    "\\N{BULLET}\\x00{0}%s{OPERATOR}",
    "`</code><script>alert(1)</script>| \x1b]0;owned\x07\x1b[2J\r\n## fake",
    "../../../etc/passwd",
    "\ud800\u202e",
]
OPERATORS = [
    "aten::log.default; import os", "aten::log.default\n", "aten::log .default",
    "os::system.default()", "aten::log.__class__.__mro__",
    "aten::", "::log", "aten.log", "conv 2D", "aten::lo\u0261.default",
    "aten::log.default.default", "Functional.linear.3.forward",
]  # fmt: skip
ALLOWED = {
    ast.Call,
    ast.Attribute,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.List,
    ast.Subscript,
    ast.keyword,
    ast.Expression,
    ast.UnaryOp,
    ast.USub,
    ast.Dict,
}


def nodes_of(code: str) -> set[type]:
    return {type(node) for node in ast.walk(ast.parse(code.strip(), mode="eval"))}


@pytest.mark.parametrize("evil", EVIL)
def test_text_of_a_run_stays_text(evil: str, tmp_path: Path) -> None:
    run, call = record("aten::log.default", torch.tensor([0.0]))
    values = {(row.io, row.slot): run.value(row) for row in run.rows("tensors")}
    rows = [
        msgspec.structs.replace(row, tensor_name=evil, role=evil) for row in run.rows("tensors")
    ]
    call = msgspec.structs.replace(call, name=evil, module=evil, source=evil, phase=evil)
    hostile, call = run_of(
        rows,
        values,
        call,
        packages={"torch": evil},
        environment={"TORCH_X": evil},
        version=evil,
        format=evil,
    )
    opscope.repro.write(hostile, call, tmp_path / "case")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["case"]
    code, document = run_script(tmp_path / "case")
    assert (code, document["verdict"]) == (1, "reproduced")
    assert not (tmp_path / "case" / "PWNED").exists()
    shown = "\n".join(document["lines"])
    assert all(c.isprintable() for c in shown.replace("\n", ""))
    readme = (tmp_path / "case" / "README.md").read_text(encoding="utf-8")
    assert all(c.isprintable() for c in readme.replace("\n", ""))
    assert [line for line in readme.splitlines() if line.startswith("#")] == HEADINGS
    assert not re.search(r"<script", re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", readme)), (
        "markup outside a code span"
    )


HEADINGS = [
    "# `aten::log.default`: -inf in output 0",
    "## The call",
    "## What was seen",
    "## Where it was recorded",
    "## Files",
]


@pytest.mark.parametrize("evil", EVIL[:-1])
def test_string_arguments_are_literals(evil: str) -> None:
    tree = parse_arguments(json.dumps({"args": [evil, [evil]], "kwargs": {"mode": evil}}), call="x")
    code = call_code("mylib::f.default", tree)
    assert nodes_of(code) <= ALLOWED
    assert code.isascii()
    call = ast.parse(code.strip(), mode="eval").body
    assert isinstance(call, ast.Call)
    assert ast.literal_eval(call.args[0]) == evil


@pytest.mark.parametrize("op", OPERATORS)
def test_operator_names_are_checked(op: str, tmp_path: Path) -> None:
    run, call = record("aten::log.default", torch.tensor([0.0]))
    with pytest.raises(UsageError, match="is not a PyTorch operator"):
        opscope.repro.write(run, msgspec.structs.replace(call, op=op), tmp_path / "case")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "node",
    [
        {"tensor": '0"]); import os; ("'},
        {"tensor": 0},
        {"tensor": "kwargs.a b"},
        {"dtype": "float16; import os"},
        {"dtype": 3},
        {"dtype": "string"},
        {"device": "cpu); import os"},
        {"device": "cuda:0:1"},
        {"layout": "strided.x"},
        {"memory_format": ["x"]},
        {"generator": "cpu()"},
        {"float": "1)"},
        {"float": ["nan"]},
        {"complex": [1]},
        {"complex": ["1", "2"]},
        {"complex": [True, 1]},
        {"complex": [{"float": "x"}, 1]},
        {"what": 1},
        {"tensor": "0", "dtype": "float16"},
        {},
        2**64,
        -(2**63) - 1,
        {"object": "ProcessGroup()"},
    ],
    ids=str,
)
def test_values_that_cannot_be_rebuilt_are_refused_with_the_reason(
    node: Any, tmp_path: Path
) -> None:
    run, call = run_of([], {}, call_row("aten::full.default", {"args": [[2], node], "kwargs": {}}))
    with pytest.raises(UsageError, match="argument 1 "):
        opscope.repro.write(run, call, tmp_path / "case")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"args": 1, "kwargs": {}}',
        "[" * 100_000,
        '{"args": [NaN], "kwargs": {}}',
        '{"args": {}}',
        None,
    ],
)
def test_argument_trees_that_are_none(text: str | None) -> None:
    with pytest.raises(UsageError):
        parse_arguments(text, call="x")


def test_deep_and_large_trees_are_refused() -> None:
    with pytest.raises(UsageError, match="nests deeper"):
        parse_arguments('{"args": [' + "[" * 20 + "]" * 20 + '], "kwargs": {}}', call="x")
    with pytest.raises(UsageError, match="larger than"):
        parse_arguments(" " * (5 << 20), call="x")


@pytest.mark.parametrize("name", ["a b", "a=1, **{}", "", "é", "a\n"])
def test_keyword_names_are_checked(name: str) -> None:
    with pytest.raises(UsageError, match="is not an identifier"):
        parse_arguments(json.dumps({"args": [], "kwargs": {name: 1}}), call="x")


names = st.text(max_size=8)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=2),
    max_leaves=12,
)


@given(args=st.lists(trees, max_size=4), kwargs=st.dictionaries(names, trees, max_size=3))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_tree_is_refused_or_becomes_literals(args: list[Any], kwargs: dict[str, Any]) -> None:
    try:
        tree = parse_arguments(json.dumps({"args": args, "kwargs": kwargs}), call="x")
    except OpscopeError:
        return
    assert nodes_of(call_code("aten::f.default", tree)) <= ALLOWED


def test_only_the_marked_place_of_the_script_differs_between_cases() -> None:
    texts = []
    for op, argument in (
        ("aten::log.default", torch.tensor([0.0])),
        ("aten::exp.default", torch.tensor([100.0])),
    ):
        run, call = record(op, argument)
        case = opscope.repro.build(run, call).case
        case = msgspec.structs.replace(
            case, failure=msgspec.structs.replace(case.failure, error=RaisedError("X", EVIL[0]))
        )
        texts.append(script(case))
    outside = [
        re.sub(re.escape(BEGIN) + ".*" + re.escape(END), "", text, flags=re.DOTALL)
        for text in texts
    ]
    assert outside[0] == outside[1]
    assert len(outside[0]) > 10_000
    assert texts[0] != texts[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": (-1,)},
        {"stride": (-1,)},
        {"stride": (1, 2)},
        {"offset": -5},
        {"shape": (2**62, 2**62), "stride": (1, 1)},
        {"shape": None},
        {"dtype": "float17"},
        {"dtype": "object"},
        {"device": "cpu; rm"},
        {"device": "meta"},
        {"layout": "sparse_coo"},
        {"tensor_class": "DTensor"},
        {"dtype": "quint8"},
        {"dtype": "string"},
        {"shape": (3,), "stride": (1,)},
    ],
    ids=str,
)
def test_rows_that_no_tensor_has_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    run, call = record("aten::log.default", torch.tensor([0.0, 1.0]))
    rows = [
        msgspec.structs.replace(row, **changes) for row in run.rows("tensors") if row.io == "input"
    ]
    hostile, call = run_of(rows, {("input", "0"): run.value(run.rows("tensors")[0])}, call)
    with pytest.raises(OpscopeError):
        opscope.repro.write(hostile, call, tmp_path / "case")
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_case_of_another_origin_is_refused(tmp_path: Path) -> None:
    for content, word in (
        ("{", "is not a case"),
        ("[]", "is not a case"),
        ('{"version": 99}', "has version 99"),
        ('{"version": 1}', "op"),
    ):
        (tmp_path / "case.json").write_text(content)
        with pytest.raises(OpscopeError, match=word):
            opscope.repro.read_case(tmp_path)
    with pytest.raises(OpscopeError, match="cannot be read"):
        opscope.repro.read_case(tmp_path / "absent")
