# SPDX-License-Identifier: Apache-2.0
"""The launcher's side of a MindSpore recording, on dump folders laid by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import opscope
from opscope.operators.catalogue import knowing
from opscope.record.config import parse_options
from opscope.record.mindspore.join import users_dump
from opscope.record.mindspore.place import (
    Facts,
    hand_declared,
    make_place,
    read_facts,
    remove_dump,
    settings_document,
    write_facts,
)
from opscope.record.mindspore.watch import Dumps
from opscope.run.query import calls, tensors_of
from opscope.run.store.layout import create_run, process_facts, seal_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return create_run(tmp_path / "run", command=["python"], config={}, version="0", run_id="x")


def lay(dump: Path, step: int, value: float, *, graph: int = 0, op: str = "Exp") -> Path:
    folder = dump / f"rank_0/Net/{graph}/{step}"
    folder.mkdir(parents=True)
    for io, content in (("input", 2.0), ("output", value)):
        name = f"{op}.Default_{op}-op0.0.0.17{step}{graph}.{io}.0.DefaultFormat.Float32.npy"
        np.save(folder / name, np.full(3, content, np.float32))
    return folder


def begin(run: Path) -> Path:
    place, dump = make_place(run, process_facts())
    write_facts(place, Facts(process=process_facts(), dump=str(dump)))
    return dump


def test_iterations_are_taken_once_the_next_has_begun(run: Path) -> None:
    dump, dumps = begin(run), Dumps(run, parse_options(""))
    lay(dump, 0, 7.0)
    dumps.poll()
    assert (dump / "rank_0/Net/0/0").exists()
    lay(dump, 1, float("inf"))
    dumps.poll()
    assert not (dump / "rank_0/Net/0/0").exists()
    dumps.close()
    seal_run(run)
    assert not dump.exists()
    found = opscope.open_run(run)
    assert [(call.step, call.op) for call in calls(found)] == [(0, "Exp"), (1, "Exp")]
    kept = [
        row for call in calls(found) for row in tensors_of(found, call) if row.value is not None
    ]
    assert {row.io for row in kept} == {"input", "output"}  # of the overflow only
    assert [finding.step for finding in opscope.scan(found).findings] == [1]
    assert [call.status for call in calls(found)] == [None, 0x20]


def test_what_the_process_declares_goes_with_the_run_and_judges_it(run: Path) -> None:
    dump, dumps = begin(run), Dumps(run, parse_options(""))
    for step in range(3):
        lay(dump, step, float("inf"), op="Fetched")
    with knowing(declared={"Fetched": {"brings": True}, "NeverCalled": {"random": True}}):
        hand_declared(dump.parent)
    dumps.poll()
    (file,) = run.glob("processes/*/operators.json")
    assert json.loads(file.read_bytes())["operators"] == {"Fetched": {"brings": True}}
    with knowing(declared={"Fetched": {"brings": True, "loss": True}}):  # declared since
        hand_declared(dump.parent)
    dumps.close()
    seal_run(run)
    assert json.loads(file.read_bytes())["operators"] == {"Fetched": {"brings": True, "loss": True}}
    assert not opscope.scan(run).findings


def test_without_declarations_nothing_is_told_of_operators(run: Path) -> None:
    dump, dumps = begin(run), Dumps(run, parse_options(""))
    lay(dump, 0, float("inf"), op="Fetched")
    hand_declared(dump.parent)
    dumps.close()
    assert not list(run.rglob("operators.json"))
    seal_run(run)
    assert [finding.op for finding in opscope.scan(run).findings] == ["Fetched"]


def test_graphs_of_one_step_stay_together(run: Path) -> None:
    dump, dumps = begin(run), Dumps(run, parse_options("--values full"))
    for step in (0, 1):
        for graph in (0, 1):
            lay(dump, step, 7.0, graph=graph)
    dumps.close()
    seal_run(run)
    found = opscope.open_run(run)
    assert [call.step for call in calls(found)] == [0, 0, 1, 1]
    indices = [call.index for call in calls(found)]
    assert indices == sorted(set(indices))
    assert all(row.value is not None for call in calls(found) for row in tensors_of(found, call))


def test_selection_holds_as_files_land(run: Path) -> None:
    dump, dumps = begin(run), Dumps(run, parse_options("--steps 1 --io output"))
    for step in (0, 1, 2):
        lay(dump, step, 7.0)
    dumps.close()
    seal_run(run)
    found = opscope.open_run(run)
    assert [(call.step, row.io) for call in calls(found) for row in tensors_of(found, call)] == [
        (1, "output")
    ]


def test_a_torn_file_is_one_line_and_a_failure_ends_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump, dumps = begin(run), Dumps(run, parse_options(""))
    folder = lay(dump, 0, 7.0)
    next(folder.glob("*output*")).write_bytes(b"\x93NUMPY torn")
    dumps.close()
    assert any("output.0" in note for note in dumps.notes)
    broken = Dumps(run, parse_options(""))
    monkeypatch.setattr(broken, "poll", lambda **_: 1 / 0)
    assert not broken.guarded(broken.close)
    assert "ZeroDivisionError" in broken.notes[0]


def test_a_path_mindspore_refuses_gets_a_temporary_dump(tmp_path: Path) -> None:
    (tmp_path / "a run.数").mkdir()
    place, dump = make_place(tmp_path / "a run.数", process_facts())
    assert not dump.is_relative_to(tmp_path)
    assert settings_document(dump, "1|3")["common_dump_settings"]["iteration"] == "1|3"
    assert read_facts(place) is None
    remove_dump(dump)
    assert not dump.parent.exists()


def test_a_users_dump_is_honoured_unless_cpu_refuses_it(tmp_path: Path) -> None:
    settings = tmp_path / "dd.json"
    common = '{{"common_dump_settings": {{"path": "/d", "saved_data": "{}"}}}}'
    settings.write_text(common.format("tensor"))
    assert users_dump({"MINDSPORE_DUMP_CONFIG": str(settings)}, tmp_path / "run") == Path("/d")
    settings.write_text(common.format("statistic"))
    assert users_dump({"MINDSPORE_DUMP_CONFIG": str(settings)}, tmp_path / "run") is None
    assert users_dump({}, tmp_path / "run") is None
    parents = tmp_path / "run/mindspore/1-2/data_dump.json"
    parents.parent.mkdir(parents=True)
    parents.write_text(common.format("tensor"))
    assert users_dump({"MINDSPORE_DUMP_CONFIG": str(parents)}, tmp_path / "run") is None
