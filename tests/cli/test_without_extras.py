# SPDX-License-Identifier: Apache-2.0
"""What pip installs beside opscope is all that its verbs need: no extra, no framework."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import write_run

from opscope.cli import main

OTHERS = "torch mindspore duckdb pyarrow pandas polars uvicorn resvg_py elftools fsspec s3fs pytest"
VERBS = """
import sys
for name in sys.argv[1].split():
    sys.modules[name] = None
from opscope.cli import main
run, out = sys.argv[2:]
for words in (
    ["scan", run],
    ["show", run, "--limit", "3"],
    ["show", run, "#0"],
    ["query", run, "select op, count(*) from calls group by 1"],
    ["compare", run, run],
    ["report", run, "-o", out + "/page.html"],
    ["report", run, run, "-o", out + "/both.html"],
    ["report", run, "-o", out + "/text.md"],
    ["report", run, "-o", out + "/path.svg"],
    ["report", run, "-o", out + "/trace.json"],
    ["convert", run, "-o", out + "/files", "--type", "npy"],
    ["doctor"],
):
    code = main(words)
    print("ended", words[0], code, flush=True)
"""


def test_every_verb_that_asks_a_run_ends_well(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", tmp_path / "train.py")
    done = subprocess.run(
        [sys.executable, "-c", VERBS, OTHERS, str(run), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "Traceback" not in done.stderr
    ended = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("ended ")]
    assert len(ended) == VERBS.count('    ["')
    assert {code for _, code in ended} <= {"0", "1"}, done.stdout + done.stderr
    for name in ("page.html", "both.html", "text.md", "path.svg", "trace.json"):
        assert (tmp_path / name).stat().st_size > 100


def test_parquet_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", tmp_path / "train.py")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert main(["convert", str(run), "-o", str(tmp_path / "out"), "--type", "parquet"]) != 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "opscope[parquet]" in told.err
