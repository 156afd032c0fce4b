# SPDX-License-Identifier: Apache-2.0
"""What the page shows of a run, as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from view_runs import overflowing

from opscope.report.json import json_text
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.scan.api import scan
from opscope.view.documents import Documents


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "secret" / "train.py"
    path.parent.mkdir()
    path.write_text("a\nb\nscores = q @ k\nd\n", encoding="utf-8")
    return path


def documents(run: MemoryRun, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json_text(Documents(run, scan(run), **more).whole()))
    return found


def test_the_path_goes_from_the_origin_to_the_loss(program: Path) -> None:
    found = documents(overflowing(source=f"{program}:3"))
    (finding,) = found["verdict"]["findings"]
    assert finding["path"] == ["0.6", "0.7", "0.8"]
    assert finding["id"] == "0.6"
    assert finding["hider"] is None
    assert [node["id"] for node in finding["graph"]["nodes"]] == ["0.6", "0.7", "0.8"]
    assert finding["code"]["lines"][finding["code"]["line"] - finding["code"]["first"]] == (
        "scores = q @ k"
    )
    assert finding["outputs"][0]["limit"] == 65504
    assert finding["commands"][0].startswith("opscope repro /u/runs/x ")


def test_a_call_knows_its_history_its_makers_and_its_readers() -> None:
    call = documents(overflowing(steps=4))["calls"]["0.9"]
    history = next(one["series"] for one in call["tensors"] if one["io"] == "output")
    assert [step for step, *_ in history] == [0, 1, 2, 3]
    assert [wrong for *_, wrong in history] == [0, 0, 0, 5]
    assert call["tensors"][2]["readers"] == [10]
    softmax = documents(overflowing(steps=4))["calls"]["0.10"]
    assert softmax["tensors"][0]["maker"] == 9
    assert [frame["place"] for frame in call["frames"]][1] == "/u/train.py:9 in <module>"


def test_a_healthy_run_has_calls_and_no_finding() -> None:
    run = overflowing(steps=3)
    healthy = MemoryRun(run.info, run.processes, run.rows("calls")[:6], run.rows("tensors")[:14])
    found = documents(healthy)
    assert found["verdict"]["verdict"] == "clean"
    assert found["verdict"]["findings"] == []
    assert "0.3" in found["calls"]


def test_an_empty_run_is_a_page_too() -> None:
    found = documents(MemoryRun(RunInfo(path="x", format="opscope"), problems=["torn"]))
    assert found["calls"] == {}
    assert found["run"]["problems"] == ["torn"]


def test_redaction_leaves_out_what_it_names(program: Path) -> None:
    run = overflowing(source=f"{program}:3")
    whole = json_text(documents(run))
    assert "q @ k" in whole
    assert "secret" in whole
    assert "65504" in whole
    sources = json_text(documents(run, redact=frozenset({"sources"})))
    assert "q @ k" not in sources
    paths = json_text(documents(run, redact=frozenset({"paths"})))
    assert "secret" not in paths
    assert "/u/" not in paths
    assert "train.py:3" in paths
    # Of a program whose path holds no number of the test's folder.
    run = overflowing()
    assert "180" in json_text(documents(run)["calls"])
    values = documents(run, redact=frozenset({"values"}))
    assert "180" not in json_text(values["calls"])
    assert values["calls"]["0.6"]["tensors"][0]["line"] == "f16[4, 4]"
