# SPDX-License-Identifier: Apache-2.0
"""data_dump.json: each rule of the manual's tables, as an error or a note, and files that break
none.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from opscope.errors import UsageError
from opscope.formats.settings.kinds import Request, read_purpose
from opscope.formats.settings.mindspore import PURPOSES, STATISTICS, check, prepare, verify
from opscope.formats.settings.mindspore_rules import Target
from opscope.formats.settings.problem import errors, notes

COMMON = {
    "dump_mode": 0, "path": "/data/dump", "net_name": "ResNet50", "iteration": "0|5-8|100-120",
    "saved_data": "tensor",
    "input_output": 0, "kernels": [], "support_device": [0, 1, 2, 3, 4, 5, 6, 7],
    "op_debug_mode": 0,
}  # fmt: skip
SYNC = {"enable": True, "trans_flag": True}
ASCEND = {"backend": "Ascend", "level": "O0"}


def document(common: dict[str, Any], e2e: dict[str, Any] | None) -> dict[str, Any]:
    whole: dict[str, Any] = {"common_dump_settings": {**COMMON, **common}}
    return whole if e2e is None else {**whole, "e2e_dump_settings": {**SYNC, **e2e}}


def remarks(
    common: dict[str, Any], e2e: dict[str, Any] | None, target: dict[str, Any], **environment: str
) -> tuple[Any, ...]:
    wanted = e2e is not None and {**SYNC, **e2e}.get("enable") is not False
    return check(document(common, e2e), Target(synchronous_wanted=wanted, **target), environment)


REFUSED = [
    # common, e2e (None: asynchronous), target, key, a word of the message
    ({"saved_data": "statistic"}, None, ASCEND | {"level": "O2"}, "file_format", "npy"),
    (
        {"saved_data": "full", "file_format": "bin"},
        None,
        ASCEND | {"level": "O2"},
        "file_format",
        "npy",
    ),
    ({"saved_data": "statistic"}, {}, {"backend": "CPU"}, "saved_data", "opscope run"),
    ({"saved_data": "full"}, {}, {"backend": "CPU"}, "saved_data", "opscope run"),
    ({"op_debug_mode": 3}, None, ASCEND | {"pynative": True, "level": None}, "iteration", "all"),
    ({"op_debug_mode": 3, "dump_mode": 1, "kernels": ["Conv2D"]}, {}, ASCEND, "dump_mode", "void"),
    ({"op_debug_mode": 4}, None, ASCEND | {"level": "O2"}, "op_debug_mode", "ACL"),
    ({"op_debug_mode": 3}, None, ASCEND, "op_debug_mode", "O0"),
    ({"op_debug_mode": 1}, {}, ASCEND, "op_debug_mode", "asynchronous"),
    ({"op_debug_mode": 3}, {}, {"backend": "CPU"}, "op_debug_mode", "Ascend only"),
    ({"op_debug_mode": 4}, {}, {"backend": "GPU"}, "op_debug_mode", "Ascend only"),
    (
        {"saved_data": "statistic", "statistic_category": ["max", "md5"]},
        {"stat_calc_mode": "device"},
        ASCEND,
        "statistic_category",
        "md5",
    ),
    (
        {"saved_data": "statistic"},
        {"stat_calc_mode": "device"},
        {"backend": "GPU"},
        "e2e_dump_settings.stat_calc_mode",
        "Ascend",
    ),
    (
        {"saved_data": "statistic", "statistic_category": ["median"]},
        {},
        ASCEND,
        "statistic_category",
        "median",
    ),
    ({}, {"sample_mode": 1}, ASCEND | {"level": "O1"}, "e2e_dump_settings.sample_mode", "O0"),
    ({}, {"sample_mode": 1}, {"backend": "CPU"}, "e2e_dump_settings.sample_mode", "Ascend"),
    ({}, {"sample_mode": 1, "sample_num": 0}, ASCEND, "e2e_dump_settings.sample_num", "at least 1"),
    ({"path": "dump/here"}, {}, ASCEND, "path", "relative"),
    ({"path": "/dump/a b"}, {}, ASCEND, "path", "letters"),
    ({"path": ""}, {}, ASCEND, "path", "MS_DIAGNOSTIC_DATA_PATH"),
    ({"net_name": "Res/Net"}, {}, ASCEND, "net_name", "letters"),
    ({"iteration": "0|x"}, {}, ASCEND, "iteration", "'x'"),
    ({"iteration": "8-5"}, {}, ASCEND, "iteration", "backwards"),
    ({"dump_mode": 2}, None, ASCEND | {"level": "O2"}, "dump_mode", "synchronous"),
    ({"dump_mode": 2}, {}, {"backend": "CPU"}, "dump_mode", "Ascend only"),
    ({"dump_mode": 2}, {}, ASCEND | {"pynative": True}, "dump_mode", "graph mode"),
    (
        {"dump_mode": 1, "kernels": ["name-regex(Default/(.+)"]},
        {},
        ASCEND,
        "kernels",
        "regular expression",
    ),
    ({"dump_mode": 1, "kernels": ["conv"]}, None, ASCEND | {"level": "O2"}, "kernels", "type"),
    (
        {"dump_mode": 1, "kernels": ["Default/Conv2D-op12"]},
        None,
        ASCEND,
        "dump_mode",
        "cannot name operators",
    ),
    ({}, {}, ASCEND | {"level": "O2"}, "e2e_dump_settings.enable", "O2"),
    ({}, {}, {"backend": "GPU", "sink": True}, "e2e_dump_settings", "dataset_sink_mode"),
    (
        {},
        None,
        ASCEND | {"acl": True, "level": "O2", "exception_dump": "2"},
        "ascend_config.exception_dump",
        "ACL",
    ),
    ({}, {}, {"backend": "CPU", "acl": True}, "MS_ACL_DUMP_CFG_PATH", "Ascend only"),
    ({"overflow_number": 3}, {}, ASCEND, "overflow_number", "op_debug_mode 3"),
    ({"dump_mode": "0"}, {}, ASCEND, "dump_mode", "whole number"),
    ({"input_output": 3}, {}, ASCEND, "input_output", "not one of"),
    ({"kernels": "Conv2D"}, {}, ASCEND, "kernels", "list of texts"),
    ({"iteratoin": "1"}, {}, ASCEND, "iteratoin", "did you mean 'iteration'"),
    ({"saved_data": "statistics"}, {}, ASCEND, "saved_data", "did you mean 'statistic'"),
]
NOTED = [
    ({"kernels": ["Conv2D"]}, {}, ASCEND, "kernels", "no effect"),
    ({}, {}, {"backend": "CPU"}, "support_device", "no effect"),
    ({}, {}, {"backend": "CPU"}, "e2e_dump_settings.trans_flag", "no effect"),
    ({}, {"enable": False}, {"backend": "GPU"}, "e2e_dump_settings.enable", "stays synchronous"),
    ({"file_format": "bin"}, {}, ASCEND, "file_format", "no effect"),
    ({"statistic_category": ["max"]}, {}, ASCEND, "statistic_category", "no effect"),
    ({}, {"sample_num": 10}, ASCEND, "e2e_dump_settings.sample_num", "no effect"),
    ({}, {}, {"backend": "CPU", "pynative": True}, "e2e_dump_settings", "@jit"),
]
FINE = [
    ({}, {}, ASCEND),
    ({}, None, ASCEND | {"level": "O2"}),
    (
        {"saved_data": "full", "file_format": "npy", "statistic_category": list(STATISTICS)},
        None,
        ASCEND | {"level": "O2"},
    ),
    (
        {"saved_data": "statistic", "statistic_category": ["max", "min", "avg", "l2norm"]},
        {"stat_calc_mode": "device"},
        ASCEND,
    ),
    ({}, {"sample_mode": 1, "sample_num": 100, "save_kernel_args": True}, ASCEND),
    ({"op_debug_mode": 3, "iteration": "all"}, None, ASCEND | {"pynative": True, "level": None}),
    ({"op_debug_mode": 4}, None, ASCEND | {"acl": True, "level": "O2"}),
    (
        {"dump_mode": 1, "kernels": ["Conv", "Default/Conv-op12", "name-regex(Default/.+)"]},
        {},
        {"backend": "GPU"},
    ),
    ({}, None, ASCEND | {"acl": True, "level": "O2", "exception_dump": "1"}),
    ({"dump_mode": 2}, {}, ASCEND),
]


@pytest.mark.parametrize(("common", "e2e", "target", "key", "word"), REFUSED)
def test_a_conflict_is_an_error_that_names_its_key(
    common: Any, e2e: Any, target: Any, key: str, word: str
) -> None:
    found = {problem.key: problem.text for problem in errors(remarks(common, e2e, target))}
    place = key if key.startswith(("e2e", "MS_", "ascend")) else f"common_dump_settings.{key}"
    assert word in found[place]


@pytest.mark.parametrize(("common", "e2e", "target", "key", "word"), NOTED)
def test_what_is_merely_ignored_is_a_note(
    common: Any, e2e: Any, target: Any, key: str, word: str
) -> None:
    found = remarks(common, e2e, target)
    place = key if key.startswith("e2e") else f"common_dump_settings.{key}"
    assert word in {problem.key: problem.text for problem in notes(found)}[place]
    assert not errors(found)


@pytest.mark.parametrize(("common", "e2e", "target"), FINE)
def test_what_the_manual_allows_is_let_through(common: Any, e2e: Any, target: Any) -> None:
    assert not errors(remarks(common, e2e, target))


def test_an_empty_path_falls_back_to_the_variable() -> None:
    found = remarks({"path": ""}, {}, ASCEND, MS_DIAGNOSTIC_DATA_PATH="/diagnostic")
    assert not errors(found)
    assert any("/diagnostic/debug_dump" in problem.text for problem in notes(found))


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        "text",
        {},
        {"common_dump_settings": []},
        {"common_dump_settings": {"dump_mode": True}},
        None,
    ],
)
def test_what_is_no_settings_file_is_refused(wrong: object) -> None:
    assert errors(verify(wrong, Request()))


@pytest.mark.parametrize("backend", ["CPU", "GPU", "Ascend"])
@pytest.mark.parametrize("level", [None, "O0", "O1", "O2", "ms_backend", "GE"])
@pytest.mark.parametrize("purpose", sorted(PURPOSES.keys() - {"set_dump", "sampling"}))
def test_what_is_written_passes_its_own_check_or_says_why_not(
    backend: str, level: str | None, purpose: str
) -> None:
    request = Request(purpose=purpose, path="/data/dump", step=10, backend=backend, level=level)
    prepared = prepare(request)
    written = json.loads(prepared.files[0].text)
    again = verify(written, request)
    assert {problem.text for problem in errors(again)} == {
        problem.text for problem in errors(prepared.problems)
    }
    allowed = backend != "Ascend" and purpose in {"compare", "statistics", "overflow", "aicore"}
    asynchronous = backend == "Ascend" and level in {"O2", "GE"}
    if not allowed and not (asynchronous and purpose == "aicore"):
        assert not errors(prepared.problems)
    assert ("e2e_dump_settings" in written) != asynchronous


def test_the_failing_step_and_the_one_before_it() -> None:
    assert read_purpose("nan at step 10") == ("nan", 10)
    text = prepare(Request(purpose="nan", step=9, path="/d")).files[0].text
    assert json.loads(text)["common_dump_settings"]["iteration"] == "8|9"


def test_keys_the_user_gives_win_and_unknown_ones_are_refused() -> None:
    text = (
        prepare(Request(path="/d", settings={"save_kernel_args": True, "net_name": "Mine"}))
        .files[0]
        .text
    )
    written = json.loads(text)
    assert written["e2e_dump_settings"]["save_kernel_args"] is True
    assert written["common_dump_settings"]["net_name"] == "Mine"
    with pytest.raises(UsageError, match="did you mean 'net_name'"):
        prepare(Request(path="/d", settings={"netname": "Mine"}))


def test_every_operator_where_no_kernel_is_named() -> None:
    """MindSpore 2.10 dumps everything for dump_mode 1 beside empty kernels, so that is no error."""
    document = {
        "common_dump_settings": {**COMMON, "dump_mode": 1},
        "e2e_dump_settings": {"enable": True, "trans_flag": True},
    }
    said = [
        problem
        for problem in verify(document, Request(**ASCEND))
        if problem.key.endswith("kernels")
    ]
    assert [(problem.severity, "every operator" in problem.text) for problem in said] == [
        ("note", True)
    ]


@pytest.mark.parametrize(
    ("phrase", "purpose", "step"),
    [
        ("第10个迭代出现NaN", "nan", 9),
        ("溢出", "overflow", None),
        ("AI Core 报错", "aicore", None),
        ("和GPU做精度比对", "compare", None),
        ("统计信息", "statistics", None),
        ("采样", "sampling", None),
        ("切片dump", "sampling", None),
        ("模型迁移", "migration", None),
        ("指定对象dump", "set_dump", None),
        ("set_dump", "set_dump", None),
        ("migrate from PyTorch", "migration", None),
        ("迭代10溢出", "overflow", 10),
        ("overflow at step 3", "overflow", 3),
        ("第1步 溢出", "overflow", 0),
    ],
)
def test_what_for_in_words_and_in_chinese(phrase: str, purpose: str, step: int | None) -> None:
    assert read_purpose(phrase) == (purpose, step)
    assert purpose in PURPOSES


def test_the_manuals_selected_objects_and_samples() -> None:
    chosen = prepare(Request(purpose="set_dump", path="/d", backend="Ascend", level="O0"))
    assert json.loads(chosen.files[0].text)["common_dump_settings"]["dump_mode"] == 2
    assert "mindspore.set_dump(" in chosen.snippets[0].text
    assert not errors(chosen.problems)
    sample = prepare(
        Request(
            purpose="sampling", path="/d", backend="Ascend", level="O0", settings={"sample_num": 7}
        )
    )
    assert json.loads(sample.files[0].text)["e2e_dump_settings"] == {
        "enable": True,
        "trans_flag": True,
        "sample_mode": 1,
        "sample_num": 7,
    }
    assert not errors(sample.problems)


@pytest.mark.parametrize("purpose", ["set_dump", "sampling"])
@pytest.mark.parametrize(
    ("backend", "level"), [("CPU", None), ("GPU", None), ("Ascend", "O2"), ("Ascend", "GE")]
)
def test_what_a_back_end_cannot_do_is_said_before(
    purpose: str, backend: str, level: str | None
) -> None:
    request = Request(purpose=purpose, path="/d", backend=backend, level=level)
    if purpose == "sampling" and backend == "Ascend":  # asynchronous dump has no key for it
        with pytest.raises(UsageError, match="synchronous"):
            prepare(request)
    else:
        assert errors(prepare(request).problems)
