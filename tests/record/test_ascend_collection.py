# SPDX-License-Identifier: Apache-2.0
"""`opscope run` on an Ascend host: a program in place of CANN writes where the environment says,
and `aicore RUN` finds it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from opscope.cli import main
from opscope.record.ascend import collection, is_ascend_host
from opscope.record.config import parse_options
from opscope.record.launch import launch

STAND_IN = """
import os, sys
from pathlib import Path
place = Path(os.environ["ASCEND_PROCESS_LOG_PATH"], "debug", "plog")
place.mkdir(parents=True)
head = "[ERROR] RUNTIME(9,python3):2024-05-06-07:08:01.000.000 [p.cc:1]9 "
(place / "plog-9_1.log").write_text(
    head + "P:The error from device(0), serial number is 7, there is an aicore error, core id is 0, error code = 0x800000, dump info: pc start: 0x10.\\n"
    + head + "P:Aicore kernel execute failed, device_id=0, stream_id=2, task_id=6, flip_num=0, fault kernel_name=1_0_Add, program id=1.\\n"
)
Path(os.environ["DUMP_GRAPH_PATH"], "x").write_text("")
Path(os.environ["ASCEND_DUMP_PATH"], "x").write_text(os.environ["ASCEND_DUMP_SCENE"])
sys.exit(3)
"""


def test_logs_graphs_and_dumps_go_under_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASCEND_HOME_PATH", "/usr/local/Ascend")
    for name in (
        "ASCEND_PROCESS_LOG_PATH",
        "DUMP_GRAPH_PATH",
        "NPU_COLLECT_PATH",
        "ASCEND_DUMP_PATH",
        "ASCEND_DUMP_SCENE",
    ):
        monkeypatch.delenv(name, raising=False)
    script = tmp_path / "train.py"
    script.write_text(STAND_IN)
    runs = [tmp_path / "first", tmp_path / "second"]
    for run in runs:
        result = launch(
            parse_options(f"-o {run}"), [sys.executable, str(script)], tell=lambda _: None
        )
        assert result.exit_code == 3
        assert any("opscope aicore" in line for line in result.notes)
        assert (run / "ascend" / "graph" / "x").exists()
        assert (run / "ascend" / "dump" / "x").read_text() == "lite_exception"
    assert main(["aicore", str(runs[0]), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["call"], finding["status"]) == ("Add", "0x800000")
    assert all(
        str(runs[0]) in file
        for record in finding["evidence"]
        if record["part"] == "error"
        for file in record["files"]
    )


def test_what_the_user_set_stays(tmp_path: Path) -> None:
    mine = {
        "ASCEND_HOME_PATH": "/a",
        "ASCEND_PROCESS_LOG_PATH": "/mine",
        "NPU_COLLECT_PATH": "/npu",
    }
    added = collection(mine, tmp_path)
    assert "ASCEND_PROCESS_LOG_PATH" not in added
    assert "ASCEND_DUMP_SCENE" not in added
    assert added["DUMP_GRAPH_PATH"] == str(tmp_path / "ascend" / "graph")


def test_nothing_is_set_elsewhere(tmp_path: Path) -> None:
    if is_ascend_host({}):
        pytest.skip("an Ascend device is here")
    assert collection({}, tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_says_what_to_type_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASCEND_HOME_PATH", "/usr/local/Ascend")
    script = tmp_path / "train.py"
    script.write_text(STAND_IN)
    assert main(["run", "-o", str(tmp_path / "run"), sys.executable, str(script)]) == 3
    assert f"opscope aicore {tmp_path / 'run'}" in capsys.readouterr().err
