# SPDX-License-Identifier: Apache-2.0
"""Runs of one program recorded by msprobe at each of its levels and by opscope, compared with each
other; and msprobe's own table.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opscope.compare.api import compare
from opscope.operators.catalogue import family
from opscope.view.compare_files import write_comparison

PYTHON = os.environ.get("OPSCOPE_MSPROBE_PYTHON")
NET = Path(__file__).with_name("msprobe_net.py")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_MSPROBE_PYTHON names no interpreter"),
]
LEVELS = ("L0", "L1", "mix")
RECORDERS = (*LEVELS, "opscope")
NORM = "self.norm = nn.GroupNorm(2, width)"
PAIRS = [(one, other) for one in RECORDERS for other in RECORDERS if one != other]


def by_msprobe(place: Path, text: str, level: str, task: str = "tensor") -> Path:
    """The program under msprobe; the dump's folder."""
    place.mkdir(parents=True)
    (place / "net.py").write_text(text)
    settings = {
        "task": task, "dump_path": str(place / "dump"), "rank": [], "step": [], "level": level,
        "async_dump": False, "risk_level": "ALL",
        task: {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
    }  # fmt: skip
    (place / "config.json").write_text(json.dumps(settings))
    _done([str(PYTHON), "net.py", "config.json"], place)
    return place / "dump"


def by_opscope(place: Path, text: str) -> Path:
    """The program without msprobe, seeded as its seed_all does, recorded by opscope."""
    place.mkdir(parents=True)
    plain = text.replace("from msprobe.pytorch import PrecisionDebugger, seed_all\n", "").replace(
        "seed_all(7)\n", ""
    )
    plain = plain.replace(
        "from torch import nn\n", "from torch import nn\ntorch.manual_seed(7)\n", 1
    )
    plain = re.sub(r" +debugger.*\n", "", plain)
    (place / "net.py").write_text(plain)
    _done(
        [
            sys.executable,
            "-m",
            "opscope",
            "run",
            "-o",
            "run",
            "--values",
            "full",
            "--",
            sys.executable,
            "net.py",
        ],
        place,
    )
    return place / "run"


def _done(words: list[str], place: Path) -> None:
    done = subprocess.run(
        words, cwd=place, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """By "healthy" or "faulty" (another epsilon) and by who recorded."""
    root = tmp_path_factory.mktemp("levels")
    text = NET.read_text()
    assert NORM in text
    texts = {
        "healthy": text,
        "faulty": text.replace(NORM, "self.norm = nn.GroupNorm(2, width, eps=1e-2)"),
    }
    found = {}
    for state, program in texts.items():
        for level in LEVELS:
            found[state, level] = by_msprobe(root / f"{state}_{level}", program, level)
        found[state, "opscope"] = by_opscope(root / f"{state}_opscope", program)
    return found


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_a_healthy_program_is_accused_of_nothing(
    runs: dict[tuple[str, str], Path], pair: tuple[str, str]
) -> None:
    document = compare(runs["healthy", pair[0]], runs["healthy", pair[1]]).document
    assert document.findings == ()
    assert document.summary["tensors"]["differ"] == 0
    assert document.summary["tensors"]["same"] >= 48
    assert not document.complete  # an LSTM, or an optimizer, is recorded by one of the two alone


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_a_wrong_epsilon_is_found_whoever_recorded(
    runs: dict[tuple[str, str], Path], pair: tuple[str, str]
) -> None:
    first = compare(runs["faulty", pair[0]], runs["healthy", pair[1]]).first()
    assert first is not None
    assert first.kind == "divergence-origin"
    assert family(first.op or "") in {"groupnorm", "group_norm", "native_group_norm"}


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_the_table_has_the_columns_and_the_numbers_of_msprobe(task: str, tmp_path: Path) -> None:
    texts = {
        "ok": NET.read_text(),
        "bad": NET.read_text().replace(NORM, "self.norm = nn.GroupNorm(2, width, eps=1e-2)"),
    }
    dumps = {
        name: by_msprobe(tmp_path / name, text, "mix", task) / "step0"
        for name, text in texts.items()
    }
    jsons = [str(next(dumps[name].iterdir()) / "dump.json") for name in ("bad", "ok")]
    _done(
        [
            str(Path(str(PYTHON)).with_name("msprobe")),
            "compare",
            "-tp",
            jsons[0],
            "-gp",
            jsons[1],
            "-o",
            "result",
        ],
        tmp_path,
    )
    (result,) = (tmp_path / "result").glob("*.csv")
    write_comparison(compare(dumps["bad"], dumps["ok"]), tmp_path / "ours.csv")
    header, theirs = table(result)
    columns, ours = table(tmp_path / "ours.csv")
    assert columns == [*header, "Verdict"]
    tensors = {name: row for name, row in theirs.items() if row["NPU Dtype"].startswith("torch.")}
    assert set(ours) == set(tensors)
    measures = (
        ("EucDist", "MaxAbsErr") if task == "tensor" else ("Max diff", "Mean diff", "L2norm diff")
    )
    for name, row in tensors.items():
        assert row["Bench Name"] == ours[name]["Bench Name"]
        for column in (*measures, "NPU max", "Bench max"):
            if is_number(row[column]) and is_number(ours[name][column]):
                assert float(ours[name][column]) == pytest.approx(
                    float(row[column]), rel=1e-4, abs=1e-5
                ), (name, column)


def table(path: Path) -> tuple[list[str], dict[str, dict[str, Any]]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        rows = {row["NPU Name"]: row for row in reader}
        return list(reader.fieldnames or ()), rows


def is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False
