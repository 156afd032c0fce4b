# SPDX-License-Identifier: Apache-2.0
"""Dumps made anew by the MindSpore that OPSCOPE_MINDSPORE_PYTHON names, so that the reader follows
the producer.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.formats.registry import open_run
from opscope.replay.api import Plan, replay
from opscope.run.protocol import Run
from opscope.scan.api import scan

PYTHON = os.environ.get("OPSCOPE_MINDSPORE_PYTHON")
NET = Path(__file__).with_name("mindspore_net.py")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_MINDSPORE_PYTHON names no interpreter"),
]


def dump(net: str, place: Path, **settings: Any) -> Path:
    """Run the net under MindSpore's own dump; the dump's folder."""
    common = {
        "dump_mode": 0, "path": str(place / "dump"), "net_name": "Net", "iteration": "all",
        "saved_data": "tensor", "input_output": 0,
        "kernels": [], "support_device": [0], "op_debug_mode": 0, **settings,
    }  # fmt: skip
    config = place / "data_dump.json"
    config.write_text(
        json.dumps(
            {
                "common_dump_settings": common,
                "e2e_dump_settings": {"enable": True, "trans_flag": True},
            }
        )
    )
    done = subprocess.run(
        [str(PYTHON), str(NET), net],
        env={**os.environ, "MINDSPORE_DUMP_CONFIG": str(config)},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return place / "dump"


def check_edges(run: Run) -> int:
    """Rows of one version hold the same bytes, and producers come before readers; the number of
    versions that were compared.
    """
    seen: dict[int, list[Any]] = defaultdict(list)
    for row in run.rows("tensors"):  # type: ignore[attr-defined]
        if row.version is not None and row.digest is not None:
            seen[row.version].append(row)
    assert [
        version for version, rows in seen.items() if len({row.digest for row in rows}) > 1
    ] == []
    for rows in seen.values():
        made = [row.index for row in rows if row.io == "output"]
        assert all(min(made) <= row.index for row in rows) if made else True
    return sum(len(rows) > 1 for rows in seen.values())


def test_calls_of_a_dump_are_made_again_by_mindspore_and_none_is_accused(tmp_path: Path) -> None:
    """Convolutions, pooling, their gradients and an update in place, judged against float64
    there.
    """
    run = open_run(dump("conv", tmp_path))
    found = replay(run, plan=Plan(python=PYTHON, repeat=2))
    assert [(finding.op, finding.reasons) for finding in found.findings] == []
    agreed = found.summary["verdicts"].get("agree", 0)
    assert agreed >= 0.8 * found.summary["calls"], (
        found.summary["verdicts"],
        found.summary["reasons"],
    )


@pytest.mark.parametrize("net", ["conv", "half", "attention"])
def test_a_whole_dump(net: str, tmp_path: Path) -> None:
    """Every kernel is found in the graph, every file equals NumPy's reading of it, every edge is
    bytes for bytes.
    """
    path = dump(net, tmp_path)
    run = open_run(path)
    assert run.info.format == "mindspore"
    calls = run.rows("calls")  # type: ignore[attr-defined]
    assert {call.step for call in calls} == {0, 1, 2}
    order = next(path.rglob("ms_execution_order_graph_*.csv")).read_text().split()[1:]
    assert [call.name for call in calls if call.step == 0] == order
    assert check_edges(run) > 20
    for row in run.rows("tensors"):  # type: ignore[attr-defined]
        if row.value is not None:
            values = np.load(path / row.value.shard)
            assert np.array_equal(run.value(row), values, equal_nan=values.dtype.kind == "f")
    assert run.problems == ()


def test_the_overflow_is_named(tmp_path: Path) -> None:
    line = next(
        number for number, text in enumerate(NET.read_text().splitlines(), 1) if "<- origin" in text
    )
    (finding,) = scan(open_run(dump("half", tmp_path, iteration="0"))).findings
    assert (finding.op, finding.source) == ("Mul", f"{NET}:{line}")


def test_the_overflow_in_a_loop_is_named(tmp_path: Path) -> None:
    """Graphs that take turns: calls in the order of time, and what the loss was handed is no fault
    of the loss.
    """
    line = next(
        number for number, text in enumerate(NET.read_text().splitlines(), 1) if "<- grows" in text
    )
    run = open_run(dump("loop", tmp_path, iteration="0"))
    turns = [
        call.op
        for call in run.rows("calls")
        if call.op in {"Less", "Mul"} and call.phase == "forward"
    ]  # type: ignore[attr-defined]
    assert turns[:9] == ["Less", "Mul"] * 4 + ["Less"]
    first = scan(run).findings[0]
    assert (first.op, first.source) == ("Mul", f"{NET}:{line}")


@pytest.mark.parametrize(
    "settings",
    [
        {"input_output": 2},
        {"input_output": 1},
        {"dump_mode": 1, "kernels": ["MatMul", "name-regex(.*Cast.*)"], "iteration": "1-2"},
    ],
)
def test_parts_of_a_dump(settings: dict[str, Any], tmp_path: Path) -> None:
    run = open_run(dump("attention", tmp_path, **settings))
    assert check_edges(run) > 20
    assert run.problems == ()
