# SPDX-License-Identifier: Apache-2.0
"""acl.json, ATC and GE options, TensorFlow's lines, msprobe's config.json: what is written passes,
each conflict is named.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from opscope.errors import UsageError
from opscope.formats.settings import acl, atc, msprobe, tensorflow
from opscope.formats.settings.kinds import BUILTIN, Request, find_kind
from opscope.formats.settings.problem import errors, notes

GOLD = Path(__file__).parent / "gold"


@pytest.mark.parametrize("purpose", list(acl.PURPOSES))
def test_acl_files_pass_their_own_check(purpose: str) -> None:
    prepared = acl.prepare(Request(purpose=purpose, path="/dump", step=3))
    assert prepared.problems == ()
    assert acl.check(json.loads(prepared.files[0].text)) == ()
    assert any("acl.init(" in snippet.text for snippet in prepared.snippets)


def test_the_manuals_overflow_file() -> None:
    assert json.loads(acl.prepare(Request(purpose="overflow")).files[0].text) == {
        "dump": {"dump_path": "output", "dump_debug": "on"}
    }


ACL_REFUSED = [
    ({"dump_debug": "on"}, "dump_path", "missing"),
    ({"dump_path": "x" * 513, "dump_debug": "on"}, "dump_path", "512"),
    ({"dump_path": "o", "dump_debug": "on", "dump_op_switch": "on"}, "dump_op_switch", "exclude"),
    (
        {"dump_path": "o", "dump_debug": "on", "dump_scene": "lite_exception"},
        "dump_debug",
        "exclude",
    ),
    (
        {"dump_path": "o", "dump_list": [{}], "dump_scene": "aic_err_brief_dump"},
        "dump_list",
        "excludes model",
    ),
    (
        {"dump_path": "o", "dump_op_switch": "on", "dump_scene": "aic_err_norm_dump"},
        "dump_op_switch",
        "excludes model",
    ),
    (
        {
            "dump_path": "o",
            "dump_scene": "watcher",
            "dump_mode": "all",
            "dump_list": [{"watcher_nodes": ["a"]}],
        },
        "dump_mode",
        "output",
    ),
    (
        {"dump_path": "o", "dump_scene": "watcher", "dump_list": [{"layer": ["a"]}]},
        "dump_list",
        "watcher_nodes",
    ),
    (
        {"dump_path": "o", "dump_list": [{"watcher_nodes": ["a"]}]},
        "dump_list[0].watcher_nodes",
        "watcher",
    ),
    ({"dump_path": "o", "dump_list": []}, "dump_list", "empty"),
    ({"dump_path": "o", "dump_list": [{"layer": [""]}]}, "dump_list[0].layer", "empty"),
    (
        {
            "dump_path": "o",
            "dump_list": [{"opname_range": [{"begin": "a", "end": "b"}]}],
            "dump_level": "op",
        },
        "dump_list[0].opname_range",
        "model_name",
    ),
    (
        {"dump_path": "o", "dump_list": [{"optype_blacklist": [{"name": "a"}]}]},
        "dump_list[0].optype_blacklist",
        "dump_level",
    ),
    ({"dump_path": "o", "dump_list": [{}], "dump_stats": ["Max"]}, "dump_stats", "stats"),
    (
        {"dump_path": "o", "dump_list": [{}], "dump_data": "stats", "dump_stats": ["Mex"]},
        "dump_stats",
        "did you mean 'Max'",
    ),
    ({"dump_path": "o", "dump_list": [{}], "dump_step": "3-1"}, "dump_step", "backwards"),
    ({"dump_path": "o", "dump_list": [{}], "dump_step": "|".join(["1"] * 101)}, "dump_step", "100"),
    ({"dump_path": "o", "dump_kernel_data": "prinft"}, "dump_kernel_data", "did you mean 'printf'"),
    ({"dump_path": "o"}, "dump_list", "nothing is dumped"),
    ({"dump_path": "o", "dump_lits": [{}]}, "dump_lits", "did you mean 'dump_list'"),
    ({"dump_path": "o", "dump_mode": "both", "dump_list": [{}]}, "dump_mode", "not one of"),
]


@pytest.mark.parametrize(("dump", "key", "word"), ACL_REFUSED)
def test_acl_conflicts(dump: dict[str, Any], key: str, word: str) -> None:
    found = {problem.key: problem.text for problem in errors(acl.check({"dump": dump}))}
    assert word in found[f"dump.{key}"]


@pytest.mark.parametrize(
    "dump",
    [
        {"dump_scene": "lite_exception"},
        {"dump_path": "output", "dump_debug": "on"},
        {
            "dump_path": "o",
            "dump_list": [{"model_name": "m"}],
            "dump_mode": "all",
            "dump_op_switch": "off",
        },
        {
            "dump_path": "o",
            "dump_scene": "watcher",
            "dump_list": [{"layer": ["a"], "watcher_nodes": ["b"]}],
        },
    ],
)
def test_acl_files_the_documents_allow(dump: dict[str, Any]) -> None:
    assert acl.check({"dump": dump}) == ()


def test_atc_and_ge_options() -> None:
    assert "--status_check=1" in atc.prepare(Request(purpose="overflow")).snippets[0].text
    found = {
        problem.key: problem.text
        for problem in errors(atc.check_options({"enableDump": "1", "enableDumpDebug": "1"}, {}))
    }
    assert "exclude" in found["enableDumpDebug"]
    assert "not one of" in errors(atc.check_options({"op_debug_level": "7"}, {}))[0].text
    assert "did you mean" in errors(atc.check_options({"op_debug_levle": "1"}, {}))[0].text
    assert notes(atc.check_options({"enable_exception_dump": "2"}, {"NPU_COLLECT_PATH": "/c"}))


def test_the_file_of_op_debug_config() -> None:
    assert atc.check_config("op_debug_config=oom,dump_cce\nop_debug_list=GatherV2\n", {}) == ()
    assert "exclude" in errors(atc.check_config("op_debug_config=oom,ccec_O0", {}))[0].text
    assert (
        "NPU_COLLECT_PATH"
        in errors(atc.check_config("op_debug_config=oom", {"NPU_COLLECT_PATH": "/c"}))[0].text
    )
    assert (
        "did you mean 'dump_cce'" in errors(atc.check_config("op_debug_config=dump_cc", {}))[0].text
    )
    assert "line 1" in errors(atc.check_config("op_debug: oom", {}))[0].key
    assert (
        atc.check_config(
            atc.prepare(Request(purpose="memory", operators=("GatherV2",))).files[0].text, {}
        )
        == ()
    )


@pytest.mark.parametrize("mode", tensorflow.MODES)
def test_the_manuals_lines_for_tensorflow(mode: str) -> None:
    prepared = tensorflow.prepare(Request(purpose="aicore", framework=mode))
    assert prepared.files[0].text == (GOLD / f"tensorflow_{mode}.txt").read_text(encoding="utf-8")
    assert [(item.name, item.value) for item in prepared.environment] == [
        ("DUMP_GE_GRAPH", "1"),
        ("DUMP_GRAPH_LEVEL", "1"),
        ("ASCEND_GLOBAL_LOG_LEVEL", "1"),
    ]


@pytest.mark.parametrize("purpose", list(tensorflow.PURPOSES))
@pytest.mark.parametrize("path", ["./dump", 'a"b\'); import os; ("', "数据\n"])
def test_a_path_stays_a_literal(purpose: str, path: str) -> None:
    for file in tensorflow.prepare(Request(purpose=purpose, path=path, step=2)).files:
        tree = ast.parse(file.text)
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert purpose == "aicore" or path in texts
        assert not [
            node for node in ast.walk(tree) if isinstance(node, ast.alias) and node.name == "os"
        ]


@pytest.mark.parametrize("purpose", list(msprobe.PURPOSES))
def test_msprobe_files_pass_their_own_check(purpose: str) -> None:
    prepared = msprobe.prepare(Request(purpose=purpose, step=4))
    assert prepared.problems == ()
    assert msprobe.check(json.loads(prepared.files[0].text)) == ()


MSPROBE_REFUSED = [
    ({"task": "statistic"}, "task", "did you mean 'statistics'"),
    ({"level": "L3"}, "level", "not one of"),
    ({"step": ["4-2"]}, "step", "range"),
    ({"rank": [True]}, "rank", "range"),
    ({"task": "tensor", "level": "L2", "tensor": {"list": []}}, "tensor.list", "exactly one"),
    ({"level": "L2"}, "level", "tensor"),
    ({"task": "tensor", "async_dump": True, "tensor": {"list": []}}, "tensor.list", "async_dump"),
    ({"task": "nan_check", "level": "mix"}, "level", "L1"),
    ({"task": "statistics", "statistics": {"scope": ["a"]}}, "statistics.scope", "range"),
    (
        {"task": "statistics", "statistics": {"data_mode": ["forwrad"]}},
        "statistics.data_mode",
        "did you mean 'forward'",
    ),
    ({"dump_pth": "x"}, "dump_pth", "did you mean 'dump_path'"),
]


@pytest.mark.parametrize(("config", "key", "word"), MSPROBE_REFUSED)
def test_msprobe_conflicts(config: dict[str, Any], key: str, word: str) -> None:
    found = {problem.key: problem.text for problem in errors(msprobe.check(config))}
    assert word in found[key]


def test_kinds_are_found_by_name() -> None:
    for name in BUILTIN:
        assert find_kind(name).name == name
    assert find_kind("acl.json").name == "acl"
    with pytest.raises(UsageError, match="did you mean mindspore"):
        find_kind("mindspor")


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_debug_level_the_user_names_stands_in_the_lines(level: int) -> None:
    estimator, session = tensorflow.prepare(
        Request(purpose="aicore", settings={"op_debug_level": level})
    ).files
    assert f"op_debug_level = {level}, " in estimator.text
    assert f'parameter_map["op_debug_level"].i = {level}' in session.text
    compile(estimator.text, "estimator", "exec")
    compile(session.text, "session", "exec")


def test_dump_options_the_user_names_win() -> None:
    settings = {"dump_mode": "input", "op_debug_level": 1}
    estimator, session = tensorflow.prepare(
        Request(purpose="dump", path="/d", step=2, settings=settings)
    ).files
    assert (
        "DumpConfig(enable_dump=True, dump_path='/d', dump_step='1|2', dump_mode='input')"
        in estimator.text
    )
    assert "op_debug_level = 1," in estimator.text
    assert "parameter_map[\"dump_mode\"].s = tf.compat.as_bytes('input')" in session.text
    compile(estimator.text, "estimator", "exec")


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"op_debug_levle": 2}, "did you mean 'op_debug_level'"),
        ({"op_debug_level": 7}, "not one of 0, 1, 2"),
        ({"dump_mode": 3}, "text"),
    ],
)
def test_keys_that_tensorflow_has_not_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        tensorflow.prepare(Request(settings=settings))
