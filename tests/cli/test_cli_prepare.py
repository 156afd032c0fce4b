# SPDX-License-Identifier: Apache-2.0
"""`opscope prepare` as a user types it: what is left out is asked for on a terminal, a file to
check says itself what it is.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import Command, environment

from opscope.errors import UsageError
from opscope.formats.settings.kinds import kind_of_file
from opscope.formats.settings.parse import parse_settings


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"common_dump_settings": {}}', "mindspore"),
        ('{"comon_dump_setings": {}}', "mindspore"),
        ('{"dump": {}}', "acl"),
        ('{"task": "tensor"}', "msprobe"),
        ("op_debug_config=oom\n", "atc"),
    ],
)
def test_a_file_says_whose_it_is(text: str, kind: str) -> None:
    assert kind_of_file(text) == kind


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "KIND"),
        ('{"x": 1}', "KIND"),
        ("no settings", "KIND"),
        ("", "empty"),
        ("{" * 5000, "line 1"),
        ("[" * 500_000, "nested too deep"),
    ],
)
def test_a_file_that_says_nothing_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        kind_of_file(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n // mode\n "common_dump_settings": {}}', "line 2, column 2: JSON has no comments"),
        ('{"common_dump_settings": {"dump_mode": 0,}}', "column 42: the comma"),
        ("{'common_dump_settings': {}}", "double quotes"),
        ('{"common_dump_settings": {"enable": True}}', "small letters"),
        ('{"common_dump_settings": {"dump_mode": 0', "ends before"),
        ('{"common_dump_settings": {"path": "/d', "ends before"),
    ],
)
def test_text_that_is_no_json_is_one_line_that_helps(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_settings(text)


def test_keys_that_stand_twice_or_in_the_wrong_table(command: Command, tmp_path: Path) -> None:
    (tmp_path / "dd.json").write_text(
        '{"common_dump_settings": {"dump_mode": 0, "dump_mode": 1, "trans_flag": true}}',
        encoding="utf-8-sig",
    )
    done = command("prepare", "--verify", "dd.json")
    assert done.returncode == 1
    told = " ".join(done.stdout.split())
    assert "dump_mode: stands 2 times" in told
    assert (
        "trans_flag: stands in the wrong table, where it has no effect; it belongs into "
        "e2e_dump_settings" in told
    )
    refused = command("run", "--config", "dd.json", "--", sys.executable, "-c", "1")
    assert refused.returncode == 2
    assert "stands 2 times" in refused.stderr


def test_a_file_is_checked_without_its_kind(command: Command, tmp_path: Path) -> None:
    (tmp_path / "acl.json").write_text('{"dump": {"dump_path": "o", "dump_debug": "onn"}}')
    done = command("prepare", "--verify", "acl.json")
    assert done.returncode == 1
    assert "did you mean 'on'?" in done.stdout


def test_on_a_terminal_kind_and_purpose_are_asked_for(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "opscope", "prepare", "--path", "/data"],
            cwd=tmp_path,
            env=environment(),
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
        ) as done:
            os.write(ours, b"1\nnan at step 10\n")
            told, _ = done.communicate(timeout=600)
    finally:
        os.close(theirs)
        os.close(ours)
    assert done.returncode == 0, told
    assert '"iteration": "9|10"' in (tmp_path / "data_dump.json").read_text()
    assert b"MINDSPORE_DUMP_CONFIG" in told
