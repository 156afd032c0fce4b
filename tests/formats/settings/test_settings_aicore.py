# SPDX-License-Identifier: Apache-2.0
"""`opscope prepare aicore`: every framework gets its lines, acl.json passes its own check, what
excludes each other is not set together.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from opscope.cli import main
from opscope.errors import UsageError
from opscope.formats.settings import acl
from opscope.formats.settings.aicore import FRAMEWORKS, PURPOSES, collected, prepare
from opscope.formats.settings.kinds import Request, find_kind


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_gets_what_it_needs(framework: str) -> None:
    prepared = prepare(Request(framework=framework))
    values = {one.name: one.value for one in prepared.environment}
    assert values["ASCEND_GLOBAL_LOG_LEVEL"] == "1"
    assert (values["DUMP_GE_GRAPH"], values["DUMP_GRAPH_LEVEL"]) == ("1", "1")
    assert prepared.snippets
    for snippet in prepared.snippets:
        if "import " in snippet.text:
            ast.parse(snippet.text)


def test_the_manuals_lines_for_tensorflow() -> None:
    said = "\n".join(snippet.text for snippet in prepare(Request()).snippets)
    assert 'custom_op.parameter_map["op_debug_level"].i = 2' in said
    assert "enable_exception_dump=1" in said.replace(" ", "")


def test_acl_json_passes_its_own_check() -> None:
    (file,) = prepare(Request(framework="acl", path="/dump")).files
    assert acl.check(json.loads(file.text)) == ()


def test_oom_goes_without_npu_collect_path() -> None:
    prepared = prepare(Request(purpose="address"))
    assert "NPU_COLLECT_PATH" not in {one.name for one in prepared.environment}
    assert {file.name: file.text for file in prepared.files}[
        "op_debug_config.cfg"
    ] == "op_debug_config=oom\n"


def test_what_costs_nothing_sets_no_log_level() -> None:
    assert "ASCEND_GLOBAL_LOG_LEVEL" not in collected("/run")
    assert all(
        value.startswith("/run/")
        for name, value in collected("/run").items()
        if name.endswith("PATH")
    )


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_kind("aicore").purposes == PURPOSES
    assert main(["prepare", "aicore", "--framework", "acl"]) == 0
    assert "{FOLDER}" not in capsys.readouterr().out
    assert (tmp_path / "acl.json").exists()
    with pytest.raises(UsageError):
        prepare(Request(framework="caffe"))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_debug_level_the_user_names_reaches_every_framework_that_has_one(level: int) -> None:
    text = "\n".join(
        snippet.text for snippet in prepare(Request(settings={"op_debug_level": level})).snippets
    )
    assert f"--op_debug_level={level}\n" in text
    assert f'parameter_map["op_debug_level"].i = {level}' in text
    assert f"op_debug_level = {level}," in text


def test_the_scene_of_the_dump_stands_in_acl_json() -> None:
    (file,) = prepare(
        Request(framework="pytorch", settings={"dump_scene": "aic_err_brief_dump"})
    ).files
    assert json.loads(file.text)["dump"]["dump_scene"] == "aic_err_brief_dump"


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        (Request(settings={"op_debug_lvl": 2}), "did you mean 'op_debug_level'"),
        (Request(settings={"op_debug_level": 3}), "not one of 0, 1, 2"),
        (Request(framework="mindspore", settings={"op_debug_level": 1}), "stands nowhere"),
        (Request(purpose="address", settings={"op_debug_level": 1}), "goes with purpose error"),
    ],
)
def test_a_setting_that_has_no_place_is_refused(request_: Request, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        prepare(request_)


def test_what_people_say_is_the_purpose_of_this_kind() -> None:
    assert prepare(Request(purpose="aicore")) == prepare(Request(purpose="error"))
