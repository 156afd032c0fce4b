# SPDX-License-Identifier: Apache-2.0
"""Another tool's settings file as a recording of ours: each setting's word, and what is refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from opscope.errors import UsageError
from opscope.formats.settings.recording import ACCUMULATING, kernel_pattern, recording_of
from opscope.record.config import parse_options
from opscope.run.selection import parse_pattern

COMMON = {
    "dump_mode": 0, "path": "/data/dump", "net_name": "ResNet50", "iteration": "all",
    "saved_data": "tensor", "input_output": 0,
    "kernels": [], "support_device": [0, 1, 2, 3, 4, 5, 6, 7], "op_debug_mode": 0,
}  # fmt: skip

MINDSPORE = [
    ({}, {"values": "full", "io": "both"}),
    ({"iteration": "0|5-8"}, {"steps": "0|5-8"}),
    ({"saved_data": "statistic"}, {"values": "anomaly"}),
    ({"saved_data": "full"}, {"values": "full"}),
    ({"input_output": 1}, {"io": "input"}),
    ({"input_output": 2}, {"io": "output"}),
    ({"support_device": [0, 3]}, {"ranks": "0,3"}),
    ({"dump_mode": 1, "kernels": []}, {}),
    (
        {"dump_mode": 1, "kernels": ["conv", "name-regex(Default/.+)"]},
        {"ops": r"*conv*,name-regex(^(?:Default/.+)(?:#\d+)?$)"},
    ),
    ({"dump_mode": 2}, {"set_dump": True}),
    ({"op_debug_mode": 3}, {"values": "overflow"}),
    ({"op_debug_mode": 4}, {"values": "anomaly"}),
    ({"op_debug_mode": 1}, {"skip": ACCUMULATING}),
    ({"op_debug_mode": 2}, {"ops": ACCUMULATING}),
]


@pytest.mark.parametrize(("common", "words"), MINDSPORE)
def test_each_setting_of_mindspore(common: dict[str, Any], words: dict[str, Any]) -> None:
    found = recording_of({"common_dump_settings": {**COMMON, **common}}, {}).words
    assert {key: found.get(key) for key in words} == words
    if "kernels" not in common:
        assert ("ops" in found) == ("ops" in words)


def test_what_only_the_tree_shows() -> None:
    e2e = {
        "enable": True,
        "trans_flag": False,
        "sample_mode": 1,
        "sample_num": 7,
        "save_kernel_args": False,
    }
    export = recording_of(
        {
            "common_dump_settings": {**COMMON, "saved_data": "full", "statistic_category": ["md5"]},
            "e2e_dump_settings": e2e,
        },
        {},
    ).export
    assert (export.path, export.net_name, export.data) == ("/data/dump", "ResNet50", "full")
    assert (export.statistics, export.sample, export.arguments, export.synchronous) == (
        ("md5",),
        7,
        False,
        True,
    )
    asynchronous = recording_of({"common_dump_settings": {**COMMON, "op_debug_mode": 3}}, {}).export
    assert (asynchronous.synchronous, asynchronous.file_format, asynchronous.only) == (
        False,
        "bin",
        "overflow",
    )
    off = {
        "common_dump_settings": COMMON,
        "e2e_dump_settings": {"enable": False, "trans_flag": True},
    }
    assert not recording_of(off, {}).export.synchronous
    assert (
        recording_of({"common_dump_settings": {**COMMON, "op_debug_mode": 4}}, {}).export.only
        == "exception"
    )


@pytest.mark.parametrize(
    ("e2e", "said"),
    [
        ({"trans_flag": True}, 0),
        ({"trans_flag": False}, 0),
        ({"stat_calc_mode": "host"}, 0),
        ({"stat_calc_mode": "device"}, 1),
    ],
)
def test_what_changes_nothing_here_changes_no_word(e2e: dict[str, Any], said: int) -> None:
    """trans_flag and stat_calc_mode are about a device's private formats, and about where
    statistics are worked out.
    """
    plain = recording_of(
        {"common_dump_settings": COMMON, "e2e_dump_settings": {"enable": True}}, {}
    )
    found = recording_of(
        {"common_dump_settings": COMMON, "e2e_dump_settings": {"enable": True, **e2e}}, {}
    )
    assert (found.words, found.export) == (plain.words, plain.export)
    assert len(found.notes) - len(plain.notes) == said


@pytest.mark.parametrize(
    "name",
    [
        "fc:scatter_add_#1",
        "<root>:_index_put_impl_#2",
        "a:index_add#1",
        "<root>:allreduce_~comm#1",
        "<root>:all_reduce~comm#1",
        "emb:embedding_dense_backward~bwd#1",
        "Default/TensorScatterAdd-op3",
        "Default/IndexAdd-op1",
        "Default/AllReduce-op0",
    ],
)
def test_accumulating_operators_of_both_frameworks(name: str) -> None:
    pattern = parse_pattern(ACCUMULATING)
    assert pattern.matches("x", name)
    assert not any(
        pattern.matches("x", other)
        for other in ("fc:addmm#1", "a:index_select#1", "Default/Gather-op1", "e:embedding#1")
    )


def test_an_empty_path_is_that_of_the_variable() -> None:
    document = {"common_dump_settings": {**COMMON, "path": ""}}
    assert recording_of(document, {"MS_DIAGNOSTIC_DATA_PATH": "/d"}).export.path == "/d/debug_dump"
    assert recording_of(document, {}).export.path == ""


@pytest.mark.parametrize(
    ("common", "word"),
    [
        ({"iteratoin": "1"}, "did you mean 'iteration'"),
        ({"iteration": "5-"}, "neither a step nor a range"),
        ({"dump_mode": "1"}, "whole number"),
        ({"dump_mode": 1, "kernels": ["name-regex(()"]}, "regular expression"),
        ({"dump_mode": 1, "kernels": ["name-regex(a"]}, "is no name-regex"),
        ({"statistic_category": ["mx"]}, "did you mean 'max'"),
    ],
)
def test_a_wrong_setting_is_refused(common: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        recording_of({"common_dump_settings": {**COMMON, **common}}, {})


def test_a_full_name_is_matched_literally() -> None:
    assert kernel_pattern("Default/Conv2D-op12") == r"name-regex(^Default/Conv2D\-op12(?:#\d+)?$)"


@pytest.mark.parametrize(
    ("kernel", "name", "wanted"),
    [  # what MindSpore 2.10 dumped of a small net on CPU
        ("name-regex(Default/.+)", "Default/fc-Dense/MatMul-op0", True),
        ("name-regex(Default/.+)", "Gradients/Default/fc-Dense/MatMul-op0", False),
        ("name-regex(Default/)", "Default/Log-op0", False),
        ("name-regex(Log)", "Default/Log-op0", False),
        ("name-regex(.+Log.+)", "Default/Log-op0", True),
        ("name-regex(Default/(fc|relu).+)", "Default/relu-ReLU/ReLU-op0", True),
        ("name-regex(Default/(fc|relu).+)", "Default/Log-op0", False),
        ("name-regex(a|Default/Log-op0)", "Default/Log-op0#2", True),
        ("name-regex((?i)default/.+)", "Default/Log-op0", True),
        ("log", "Default/Log-op0", True),
        ("Default/Log-op0", "Default/Log-op0", True),
        ("Default/Log-op0", "Default/Log-op0#3", True),
        ("Default/Log-op1", "Default/Log-op12", False),
        ("Default/Log-op0", "Gradients/Default/Log-op0", False),
        ("Log-op0", "Default/Log-op0", False),
    ],
)
def test_kernels_are_matched_as_mindspore_matches_them(
    kernel: str, name: str, *, wanted: bool
) -> None:
    assert parse_pattern(kernel_pattern(kernel)).matches("Log", name) is wanted


@pytest.mark.parametrize(
    ("dump", "words"),
    [
        ({"dump_path": "o", "dump_list": [{}]}, {"values": "full", "io": "output"}),
        (
            {
                "dump_path": "o",
                "dump_list": [{"layer": ["Conv"]}],
                "dump_mode": "all",
                "dump_step": "3",
            },
            {"io": "both", "ops": "*Conv*", "steps": "3"},
        ),
        ({"dump_path": "o", "dump_debug": "on"}, {"values": "overflow"}),
        (
            {"dump_path": "o", "dump_list": [{}], "dump_data": "stats", "dump_stats": ["Max"]},
            {"values": "anomaly"},
        ),
    ],
)
def test_acl_json(dump: dict[str, Any], words: dict[str, Any]) -> None:
    found = recording_of({"dump": dump}, {})
    assert found.tool == "acl"
    assert {key: found.words.get(key) for key in words} == words


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"task": "statistics", "level": "L1"}, {"values": "anomaly", "levels": "operator,api"}),
        (
            {"task": "tensor", "level": "mix", "step": [1, "3-4"], "rank": [0]},
            {"values": "full", "steps": "1|3-4", "ranks": "0"},
        ),
        (
            {"task": "tensor", "tensor": {"list": ["relu"], "data_mode": ["backward", "input"]}},
            {"ops": "*relu*", "phases": "backward", "io": "input"},
        ),
        (
            {"task": "statistics", "seed": 7, "is_deterministic": True},
            {"seed": "7", "deterministic": True},
        ),
    ],
)
def test_config_json_of_msprobe(config: dict[str, Any], words: dict[str, Any]) -> None:
    found = recording_of(config, {})
    assert {key: found.words.get(key) for key in words} == words


def test_the_options_of_run_read_such_a_file_and_win_over_it(tmp_path: Path) -> None:
    file = tmp_path / "data dump.json"
    file.write_text(
        json.dumps({"common_dump_settings": {**COMMON, "iteration": "2", "input_output": 1}}),
        encoding="utf-8",
    )
    config = parse_options(f"--config {shlex.quote(str(file))} --io output")
    assert (config.values, config.selection.steps, config.selection.io) == (
        "full",
        ((2, 2),),
        "output",
    )


def test_what_is_wrong_in_a_file_is_said_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps({"common_dump_settings": {**COMMON, "iteration": "0|x"}}))
    with pytest.raises(UsageError, match=r"x\.json: common_dump_settings\.iteration: 'x'"):
        parse_options(["--config", str(file)])


@pytest.mark.parametrize("text", ["{", "[]", "3", "", "{}", '{"a": 1}', "{" + '"a":{' * 3000])
def test_a_file_that_is_no_settings_file_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"x\.json") as caught:
        parse_options(["--config", str(file)])
    assert "\n" not in str(caught.value)
