# SPDX-License-Identifier: Apache-2.0
"""What pip installs beside opscope is all that its verbs need: no extra, no framework."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_runs import write_narrow_run, write_run

from opscope.cli import main
from opscope.narrow import dtype, limits

OTHERS = (
    "torch mindspore duckdb pyarrow pandas polars uvicorn resvg_py elftools fsspec s3fs pytest "
    "ml_dtypes safetensors"
)
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


NARROW = """
import sys
for name in sys.argv[1].split():
    sys.modules[name] = None
from opscope.cli import main
run, other, out = sys.argv[2:]
for words in (
    ["scan", run, "--json"],
    ["show", run, "--limit", "3"],
    ["show", run, "#0", "--values", "--json"],
    ["show", run, "#1", "--values"],
    ["compare", other, run, "--json"],
    ["compare", other, run, "-o", out + "/rows.csv"],
    ["report", other, run, "-o", out + "/both.html"],
    *(
        ["convert", run, "-o", out + "/" + kind, "--type", kind]
        for kind in ("npy", "bin", "txt", "csv", "safetensors", "pt")
    ),
):
    print("ended", words[0], main(words), flush=True)
"""


def test_floats_that_numpy_lacks_need_no_ml_dtypes(tmp_path: Path) -> None:
    run = write_narrow_run(tmp_path / "run", tmp_path / "train.py")
    other = write_narrow_run(tmp_path / "other", tmp_path / "train.py", factor=2.0)
    done = subprocess.run(
        [sys.executable, "-c", NARROW, OTHERS, str(run), str(other), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    ended = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("ended ")]
    assert ended[:7] == [
        ["scan", "1"], ["show", "0"], ["show", "0"], ["show", "0"],
        ["compare", "1"], ["compare", "1"], ["report", "0"],
    ]  # fmt: skip
    assert "[ 0.5  1.   2.   4.  15.5]" in done.stdout
    files = [np.load(path).tolist() for path in (tmp_path / "npy").rglob("*.npy")]
    assert [0.5, 1, 2, 4, limits(dtype("bfloat16")).largest] in files
    assert [1, 2, 4, 8, np.inf] in files


def test_parquet_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", tmp_path / "train.py")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert main(["convert", str(run), "-o", str(tmp_path / "out"), "--type", "parquet"]) != 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "opscope[parquet]" in told.err
