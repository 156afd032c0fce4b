# SPDX-License-Identifier: Apache-2.0
"""Dumps made anew by the msprobe that OPSCOPE_MSPROBE_PYTHON names, so that the reader follows the
producer; and msprobe reading ours.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest

from opscope.formats.convert import convert
from opscope.formats.registry import open_run
from opscope.formats.writing.job import Job
from opscope.scan.api import scan

PYTHON = os.environ.get("OPSCOPE_MSPROBE_PYTHON")
NET = Path(__file__).with_name("msprobe_net.py")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_MSPROBE_PYTHON names no interpreter"),
]
CASES = [
    (task, level, summary)
    for task, summary in (
        ("statistics", "statistics"),
        ("statistics", "md5"),
        ("tensor", "statistics"),
        ("structure", "statistics"),
    )
    for level in ("L0", "L1", "mix")
    if not (task == "structure" and level == "L1")
]


def dump(place: Path, task: str, level: str, summary: str) -> Path:
    """Run the net under msprobe; the dump's folder."""
    out = place / "dump"
    settings = {
        "task": task, "dump_path": str(out), "rank": [], "step": [], "level": level,
        "async_dump": False, "risk_level": "ALL",
        task: {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": summary},
    }  # fmt: skip
    config = place / "config.json"
    config.write_text(json.dumps(settings))
    done = subprocess.run(
        [str(PYTHON), str(NET), str(config)],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return out


@pytest.mark.parametrize(("task", "level", "summary"), CASES)
def test_every_task_and_level(task: str, level: str, summary: str, tmp_path: Path) -> None:
    path = dump(tmp_path, task, level, summary)
    run = open_run(path)
    assert run.info.format == "msprobe"
    calls = run.rows("calls")  # type: ignore[attr-defined]
    assert {call.step for call in calls} == ({0, 1} if task != "structure" else set())
    assert {call.level for call in calls} <= {
        "L0": {"module"},
        "L1": {"api"},
        "mix": {"api", "module"},
    }[level]
    assert run.problems == ()
    for row in run.rows("tensors"):  # type: ignore[attr-defined]
        assert (row.digest is not None) == (task == "tensor")
        assert row.max is not None
    if task != "structure":
        assert scan(run).verdict == "clean"
        assert any(call.source == f"{NET}:{_line('self.act(self.conv')}" for call in calls)


def _line(text: str) -> int:
    return next(
        number for number, line in enumerate(NET.read_text().splitlines(), 1) if text in line
    )


def test_msprobe_reads_what_we_write(tmp_path: Path) -> None:
    """Its compare finds our copy of its own dump equal, row by row."""
    path = dump(tmp_path, "tensor", "mix", "statistics")
    convert([path], Job(out=tmp_path / "copy", kind="msprobe"), lambda what, done, total: None)
    sides = [next((root / "step0").iterdir()) / "dump.json" for root in (path, tmp_path / "copy")]
    words = [
        str(Path(str(PYTHON)).with_name("msprobe")),
        "compare",
        "-tp",
        str(sides[1]),
        "-gp",
        str(sides[0]),
        "-o",
        str(tmp_path / "result"),
    ]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    (result,) = (tmp_path / "result").glob("*.csv")
    with result.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) > 300, done.stdout[-2000:]
    assert [row["Bench Name"] for row in rows] == [row["NPU Name"] for row in rows]
    assert {row["Result"] for row in rows} == {"pass"}
    assert {row["MaxAbsErr"] for row in rows if row["NPU Dtype"].startswith("torch.")} == {"0.0"}
