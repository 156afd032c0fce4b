# SPDX-License-Identifier: Apache-2.0
"""`opscope prepare` as a user types it: what is left out is asked for on a terminal, a file to check says itself what it is."""

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


@pytest.mark.parametrize(("text", "kind"), [
    ('{"common_dump_settings": {}}', "mindspore"), ('{"comon_dump_setings": {}}', "mindspore"), ('{"dump": {}}', "acl"),
    ('{"task": "tensor"}', "msprobe"), ("op_debug_config=oom\n", "atc"),
])  # fmt: skip
def test_a_file_says_whose_it_is(text: str, kind: str) -> None:
    assert kind_of_file(text) == kind


@pytest.mark.parametrize("text", ["", "[]", '{"x": 1}', "{" * 5000, "no settings"])
def test_a_file_that_says_nothing_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="KIND"):
        kind_of_file(text)


def test_a_file_is_checked_without_its_kind(command: Command, tmp_path: Path) -> None:
    (tmp_path / "acl.json").write_text('{"dump": {"dump_path": "o", "dump_debug": "onn"}}')
    done = command("prepare", "--verify", "acl.json")
    assert done.returncode == 1
    assert "did you mean 'on'?" in done.stdout


def test_on_a_terminal_kind_and_purpose_are_asked_for(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "opscope", "prepare", "--path", "/data"], cwd=tmp_path, env=environment(), stdin=theirs,
            stdout=subprocess.PIPE, stderr=theirs,
        ) as done:  # fmt: skip
            os.write(ours, b"1\nnan at step 10\n")
            told, _ = done.communicate(timeout=600)
    finally:
        os.close(theirs)
        os.close(ours)
    assert done.returncode == 0, told
    assert '"iteration": "9|10"' in (tmp_path / "data_dump.json").read_text()
    assert b"MINDSPORE_DUMP_CONFIG" in told
