# SPDX-License-Identifier: Apache-2.0
"""Tables of a PyNative recording, from stand-ins of MindSpore's tensors: versions, names, steps, values, what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opscope
from opscope.record.config import parse_options
from opscope.record.mindspore.frames import Site, path_of, site_of
from opscope.record.mindspore.pynative import Book, Noted, arguments_text, plain_call, tensors_in
from opscope.run.query import calls, tensors_of
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.writer import ProcessWriter


class FakeTensor:
    """What the recorder asks of a MindSpore tensor."""

    def __init__(self, values: Any, dtype: str = "Float32") -> None:
        self.values, self.dtype = np.asarray(values), dtype
        self.shape, self.device = self.values.shape, "CPU"

    def data_ptr(self) -> int:
        return int(self.values.__array_interface__["data"][0])

    def asnumpy(self) -> Any:
        if self.dtype == "BFloat16":
            raise RuntimeError("The Numpy bfloat16 data type is not supported now")
        return self.values


HERE = Site("head", "forward", "net.py:3", ("net.py:3 in construct",))
BACK = Site("head", "backward", None, ())


class Recorded:
    """A book that writes into a run of its own."""

    def __init__(self, path: Path, options: str = "") -> None:
        self.path = create_run(path, command=["python"], config={}, version="0", run_id="x")
        self.book = Book(lambda: ProcessWriter(self.path, process_facts()), parse_options(options))

    def call(self, op: str, inputs: list[Any], outputs: list[Any], site: Site = HERE, error: str | None = None) -> None:
        self.book.turn(site)
        if self.book.wanted(op, site):
            before = self.book.before(list(tensors_in(inputs, FakeTensor)))
            noted = Noted(op, site, arguments_text(inputs, FakeTensor), before)
            self.book.add(noted, list(tensors_in(outputs, FakeTensor)), error)

    def run(self) -> Any:
        self.book.close()
        seal_run(self.path)
        return opscope.open_run(self.path)


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "run")


def test_an_output_read_again_is_the_same_version(recorded: Recorded) -> None:
    x, y = FakeTensor(np.arange(4, dtype=np.float32)), FakeTensor(np.ones(3, np.float32))
    recorded.call("Exp", [x], [y])
    recorded.call("Mul", [y, 2.0], [FakeTensor(np.full(3, 2, np.float32))])
    run = recorded.run()
    first, second = calls(run)
    (made,) = [row for row in tensors_of(run, first) if row.io == "output"]
    (read,) = [row for row in tensors_of(run, second) if row.io == "input"]
    assert made.version == read.version
    assert json.loads(second.args) == {"args": [{"tensor": "0"}, 2.0], "kwargs": {}}
    assert (second.name, second.source, second.module) == ("head:Mul#1", "net.py:3", "head")


def test_bytes_that_changed_in_place_are_another_version(recorded: Recorded) -> None:
    x = FakeTensor(np.zeros(4, np.float32))
    recorded.call("Relu", [x], [])
    x.values += 1
    recorded.call("Relu", [x], [])
    run = recorded.run()
    versions = [row.version for call in calls(run) for row in tensors_of(run, call)]
    assert len(set(versions)) == 2


def test_the_values_of_an_origin_are_kept_as_they_were_before(recorded: Recorded) -> None:
    x = FakeTensor(np.full(2, 100.0, np.float32))
    recorded.book.turn(HERE)
    before = recorded.book.before([("0", x)])
    x.values[:] = np.inf
    recorded.book.add(Noted("Exp_", HERE, "{}", before), [("0", x)], None)
    run = recorded.run()
    (call,) = calls(run)
    assert call.status == 0x20
    rows = {row.io: run.value(row).tolist() for row in tensors_of(run, call)}
    assert rows == {"input": [100.0, 100.0], "output": [np.inf, np.inf]}
    assert opscope.scan(run).findings[0].op == "Exp_"


def test_a_step_ends_when_forward_work_follows_a_gradient(recorded: Recorded) -> None:
    x = FakeTensor(np.zeros(2, np.float32))
    for site in (HERE, BACK, BACK, HERE, BACK):
        recorded.call("MatMul", [x], [], site)
    assert [(call.step, call.phase, call.name) for call in calls(recorded.run())] == [
        (0, "forward", "head:MatMul#1"), (0, "backward", "head:MatMul~bwd#1"), (0, "backward", "head:MatMul~bwd#2"),
        (1, "forward", "head:MatMul#1"), (1, "backward", "head:MatMul~bwd#1"),
    ]  # fmt: skip


def test_what_numpy_cannot_hold_is_listed_without_statistics(recorded: Recorded) -> None:
    recorded.call("Cast", [FakeTensor(np.zeros(2, np.float32), "BFloat16")], [], error="ValueError: no")
    run = recorded.run()
    (call,) = calls(run)
    (row,) = tensors_of(run, call)
    assert (row.dtype, row.shape, row.size, row.value) == ("bfloat16", (2,), None, None)
    assert call.error == "ValueError: no"


def test_selection(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "run", "--ops Exp --io output --steps 0")
    x = FakeTensor(np.zeros(2, np.float32))
    for op, site in (("Exp", HERE), ("Mul", HERE), ("Exp", BACK), ("Exp", HERE)):
        recorded.call(op, [x], [x], site)
    run = recorded.run()
    assert [call.op for call in calls(run)] == ["Exp", "Exp"]
    assert {row.io for call in calls(run) for row in tensors_of(run, call)} == {"output"}
    assert not recorded.book.observing


def test_a_program_without_primitives_leaves_no_process(recorded: Recorded) -> None:
    recorded.book.close()
    assert not list((recorded.path / "processes").glob("p-*"))


def test_giving_up_ends_the_recording_only(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    recorded.call("Exp", [FakeTensor(np.zeros(2, np.float32))], [])
    recorded.book.give_up(RuntimeError("no\nroom"))
    assert "the program goes on" in capsys.readouterr().err
    assert not recorded.book.observing


def test_operands_of_older_entry_points() -> None:
    assert plain_call(("prim", "BiasAdd", (1, 2))) == (1, 2)
    assert plain_call((1, 2)) == (1, 2)


class Cell:
    def __init__(self, **cells: Any) -> None:
        self._cells = cells


def test_paths_of_cells() -> None:
    leaf = Cell()
    middle = Cell(fc=leaf, other=None)
    root = Cell(blocks=Cell(**{"0": middle}))
    assert path_of([root, middle, leaf]) == "blocks.0.fc"
    assert path_of([root]) == ""
    assert path_of([root, Cell()]) == "Cell"
    assert path_of([]) == ""


def test_the_site_of_a_call_in_this_file() -> None:
    site = site_of(sys._getframe())
    assert site.phase == "forward"
    assert site.source is not None
    assert site.source.startswith(f"{__file__}:")
