# SPDX-License-Identifier: Apache-2.0
"""Tables of a PyNative recording, from stand-ins of MindSpore's tensors: versions, names, steps,
values, what is refused.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import opscope
from opscope.narrow import widened
from opscope.operators.catalogue import knowing
from opscope.record.chosen import Chosen, path_from_the_root
from opscope.record.config import parse_options
from opscope.record.mindspore.book import Book, Noted
from opscope.record.mindspore.cells import operator_of, path_below, watch_cells
from opscope.record.mindspore.compiled import CompiledParts, began
from opscope.record.mindspore.frames import Site, site_of
from opscope.record.mindspore.place import Facts, make_place, read_choices, read_facts
from opscope.record.mindspore.pynative import PyNative
from opscope.record.mindspore.reading import (
    arguments_text,
    array_of,
    attributes_of,
    plain_call,
    tensors_in,
)
from opscope.run.query import calls, tensors_of
from opscope.run.store.blackbox import read_blackbox
from opscope.run.store.layout import (
    BLACKBOX,
    create_run,
    process_directories,
    process_facts,
    seal_run,
)
from opscope.run.store.writer import ProcessWriter


class FakeTensor:
    """What the recorder asks of a MindSpore tensor."""

    def __init__(self, values: Any, dtype: str = "Float32") -> None:
        self.values, self.dtype = np.asarray(values), dtype
        self.shape, self.device = self.values.shape, "CPU"

    def data_ptr(self) -> int:
        return int(self.values.__array_interface__["data"][0])

    def asnumpy(self) -> Any:
        if self.dtype in {"BFloat16", "Odd"}:
            raise RuntimeError(f"The Numpy {self.dtype} data type is not supported now")
        return self.values

    def get_bytes(self) -> bytes:
        return bytes(self.values.astype(ml_dtypes.bfloat16).tobytes())


HERE = Site("forward", "net.py:3", ("net.py:3 in construct",))
BACK = Site("backward", None, ())
STEPPING = Site("optimizer", "net.py:9", ())


class Cell:
    """What the recorder asks of a Cell."""

    def __init__(self, **cells: Any) -> None:
        self._cells = cells

    def cells_and_names(self) -> Any:
        return self._cells.items()

    def get_parameters(self) -> Any:
        return vars(self).get("parameters", ())

    def __call__(self, value: Any) -> Any:
        if value == "no data":
            raise ValueError(value)
        return [cell(value) for cell in self._cells.values() if cell is not None] or value


class Optimizer(Cell):
    """A Cell that is an optimizer."""


class Recorded:
    """A book that writes into a run of its own."""

    def __init__(self, path: Path, options: str = "", *, live: set[Any] = frozenset()) -> None:  # type: ignore[assignment]
        self.path = create_run(path, command=["python"], config={}, version="0", run_id="x")
        self.stopped: list[int] = []
        self.chosen = Chosen()
        self.book = Book(
            lambda: ProcessWriter(self.path, process_facts()),
            parse_options(options),
            live=lambda: set(live),
            stop=self.stopped.append,
            chosen=self.chosen,
        )

    def call(
        self,
        op: str,
        inputs: list[Any],
        outputs: list[Any],
        site: Site = HERE,
        error: str | None = None,
    ) -> None:
        self.book.turn(site)
        if self.book.wanted(op, site.phase):
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
    assert json.loads(second.args or "") == {"args": [{"tensor": "0"}, 2.0], "kwargs": {}}
    assert (second.name, second.source, second.module) == ("<root>:Mul#1", "net.py:3", "")


def test_what_is_declared_of_a_primitive_is_written_when_it_is_met(recorded: Recorded) -> None:
    with knowing(declared={"Mine": {"moves": True}, "Other": {"random": True}}):
        recorded.call("Mine", [FakeTensor(np.ones(3, np.float32))], [])
    (file,) = recorded.path.glob("processes/*/operators.json")
    assert json.loads(file.read_bytes())["operators"] == {"Mine": {"moves": True}}


def test_the_primitive_that_runs_stands_in_the_black_box(recorded: Recorded) -> None:
    x = FakeTensor(np.ones(3, np.float32))
    noted = recorded.book.enter(Noted("Exp", HERE, "{}", recorded.book.before([("0", x)])))
    (directory,) = process_directories(recorded.path)
    (call,) = read_blackbox(directory / BLACKBOX).open
    assert (call.op, call.name, call.source, call.index) == (
        "Exp",
        "<root>:Exp#1",
        "net.py:3",
        noted.index,
    )
    recorded.book.add(noted, [("0", x)], None)
    recorded.book.leave(noted)
    assert read_blackbox(directory / BLACKBOX).open == ()
    assert [(call.index, call.name) for call in calls(recorded.run())] == [
        (noted.index, "<root>:Exp#1")
    ]


def test_bytes_that_changed_in_place_are_another_version(recorded: Recorded) -> None:
    x = FakeTensor(np.zeros(4, np.float32))
    recorded.call("Relu", [x], [])
    x.values += 1
    recorded.call("Relu", [x], [])
    run = recorded.run()
    versions = [row.version for call in calls(run) for row in tensors_of(run, call)]
    assert len(set(versions)) == 2


class FakeView(FakeTensor):
    """Elements of another tensor's storage."""

    def __init__(self, base: FakeTensor, values: Any) -> None:
        super().__init__(values)
        self.base = base

    def untyped_storage(self) -> Any:
        return SimpleNamespace(data_ptr=self.base.data_ptr, nbytes=lambda: self.base.values.nbytes)


def test_a_view_that_no_primitive_made_has_the_version_of_what_it_is_a_part_of(
    recorded: Recorded,
) -> None:
    y = FakeTensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    view = FakeView(y, y.values[:, 1])
    recorded.call("Exp", [], [y])
    recorded.call("Abs", [view], [])
    recorded.call("Neg", [FakeTensor(view.values.copy())], [])  # a copy that MindSpore made of it
    y.values[0, 0] = 100
    recorded.call("Sin", [FakeView(y, y.values[:, 2])], [])
    run = recorded.run()
    made, read, copied, changed = (
        row.version for call in calls(run) for row in tensors_of(run, call)
    )
    assert made == read == copied
    assert changed != made


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
        (0, "forward", "<root>:MatMul#1"),
        (0, "backward", "<root>:MatMul~bwd#1"),
        (0, "backward", "<root>:MatMul~bwd#2"),
        (1, "forward", "<root>:MatMul#1"),
        (1, "backward", "<root>:MatMul~bwd#1"),
    ]


def test_bfloat16_is_read_from_its_bytes(recorded: Recorded) -> None:
    x = FakeTensor(np.array([1.5, -2], np.float32), "BFloat16")
    recorded.call("Cast", [x], [], error="ValueError: no")
    run = recorded.run()
    (call,) = calls(run)
    (row,) = tensors_of(run, call)
    assert (row.dtype, row.shape, row.max, row.size) == ("bfloat16", (2,), 1.5, 2)
    assert call.error == "ValueError: no"
    assert widened(run.value(row)).tolist() == [
        1.5,
        -2.0,
    ]  # the inputs of a call that raised are kept


def test_what_numpy_cannot_hold_is_listed_without_statistics(recorded: Recorded) -> None:
    recorded.call("Print", [FakeTensor(np.zeros(2, np.float32), "Odd")], [])
    run = recorded.run()
    (call,) = calls(run)
    (row,) = tensors_of(run, call)
    assert (row.dtype, row.shape, row.size, row.value) == ("odd", (2,), None, None)


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


def test_giving_up_ends_the_recording_only(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.call("Exp", [FakeTensor(np.zeros(2, np.float32))], [])
    recorded.book.give_up(RuntimeError("no\nroom"))
    assert "the program goes on" in capsys.readouterr().err
    assert not recorded.book.observing


def test_what_a_primitive_was_built_with_is_in_its_arguments() -> None:
    primitive = SimpleNamespace(init_attrs={"kernel_size": (2, 2), "pad_mode": "same"})
    given = (primitive, "MaxPool", (FakeTensor(np.zeros(2)),))
    text = arguments_text(plain_call(given), FakeTensor, attributes_of(given))
    assert json.loads(text) == {
        "args": [{"tensor": "0"}],
        "kwargs": {"kernel_size": [2, 2], "pad_mode": "same"},
    }
    assert attributes_of((1, 2)) == {}


def test_operands_of_older_entry_points() -> None:
    assert plain_call(("prim", "BiasAdd", (1, 2))) == (1, 2)
    assert plain_call((1, 2)) == (1, 2)


def test_cells_have_rows_around_what_runs_in_them(recorded: Recorded) -> None:
    leaf = Cell()
    root = Cell(blocks=Cell(**{"0": Cell(fc=leaf)}))
    x, y = FakeTensor(np.arange(4, dtype=np.float32)), FakeTensor(np.ones(3, np.float32))
    outer = recorded.book.enter_cell(root, [("0", x)], optimizer=False)
    inner = recorded.book.enter_cell(leaf, [("0", x)], optimizer=False)
    recorded.call("MatMul", [x], [y])
    recorded.book.leave_cell(inner, [("0", y)], HERE, None)
    recorded.book.leave_cell(outer, [("0", y)], HERE, None)
    recorded.call("MatMul", [y, x], [FakeTensor(np.full(2, 7, np.float32))], BACK)
    run = recorded.run()
    rows = [(call.level, call.name, call.parent, call.module) for call in calls(run)]
    assert rows == [
        ("module", "<root>:Cell#1", None, ""),
        ("module", "blocks.0.fc:Cell#1", 0, "blocks.0.fc"),
        ("operator", "blocks.0.fc:MatMul#1", 1, "blocks.0.fc"),
        ("operator", "blocks.0.fc:MatMul~bwd#1", None, "blocks.0.fc"),
    ]
    given = [[row.version for row in tensors_of(run, call)] for call in calls(run)]
    assert given[0] == given[1] == given[2]
    assert [call.forward_index for call in calls(run)] == [None, None, None, 2]
    assert [call.source for call in calls(run)][3] == "net.py:3"


def test_what_a_primitive_is_handed_of_a_parameter_bears_its_name(recorded: Recorded) -> None:
    """MindSpore casts a parameter to its own type, and the primitive gets a tensor of its bytes."""

    class Unset(FakeTensor):
        def data_ptr(self) -> int:
            raise RuntimeError("no data yet")

    cell, weight = Cell(), FakeTensor(np.full(3, 2, np.float32))
    unset = Unset(np.ones(3, np.float32))
    weight.name, unset.name = "fc.weight", "fc.bias"  # type: ignore[attr-defined]
    cell.parameters = (unset, weight)  # type: ignore[attr-defined]
    recorded.book.enter_cell(cell, [], optimizer=False)
    handed, other = FakeTensor(weight.values), FakeTensor(weight.values.copy())
    recorded.call("Mul", [handed, other], [FakeTensor(np.ones(3, np.float32))])
    run = recorded.run()
    (call,) = (call for call in calls(run) if call.level == "operator")
    named = [(row.role, row.tensor_name) for row in tensors_of(run, call)]
    assert named == [("parameter", "fc.weight"), (None, None), (None, None)]


def test_a_step_ends_with_the_optimizer_that_is_alive(tmp_path: Path) -> None:
    optimizer = Optimizer()
    recorded = Recorded(tmp_path / "run", live={id(optimizer)})
    x = FakeTensor(np.zeros(2, np.float32))
    for _ in range(2):
        recorded.call("MatMul", [x], [])
        recorded.call("MatMul", [x], [], BACK)
        recorded.call("Sqrt", [x], [])  # a norm of the gradients is work of the same step
        scope = recorded.book.enter_cell(optimizer, [("0", x)], optimizer=True)
        recorded.call("Assign", [x], [], STEPPING)
        recorded.book.leave_cell(scope, [], STEPPING, None)
    found = [(call.step, call.level, call.op, call.phase) for call in calls(recorded.run())]
    for step in (0, 1):
        assert found[5 * step : 5 * step + 5] == [
            (step, "operator", "MatMul", "forward"),
            (step, "operator", "MatMul", "backward"),
            (step, "operator", "Sqrt", "forward"),
            (step, "module", operator_of(optimizer), "optimizer"),
            (step, "operator", "Assign", "optimizer"),
        ]


def test_the_program_ends_after_the_last_step_and_at_an_overflow(tmp_path: Path) -> None:
    x = FakeTensor(np.zeros(2, np.float32))
    around, overflow = (
        Recorded(tmp_path / "a", "--around 1"),
        Recorded(tmp_path / "b", "--on-overflow stop"),
    )
    for recorded in (around, overflow):
        for _ in range(4):
            recorded.call("Exp", [x], [FakeTensor(np.full(1, np.inf, np.float32))])
            recorded.book.mark_step()
    assert around.stopped[0] == 0
    assert sorted({call.step for call in calls(around.run())}) == [0, 1]
    assert overflow.stopped[0] == 1


def test_a_mark_after_a_step_that_was_noticed_is_the_same_end(tmp_path: Path) -> None:
    optimizer = Optimizer()
    recorded = Recorded(tmp_path / "run", live={id(optimizer)})
    x = FakeTensor(np.zeros(2, np.float32))
    for _ in range(3):
        recorded.call("MatMul", [x], [])
        recorded.call("MatMul", [x], [], BACK)
        scope = recorded.book.enter_cell(optimizer, [], optimizer=True)
        recorded.book.leave_cell(scope, [], STEPPING, None)
        recorded.book.mark_step()
    assert [call.step for call in calls(recorded.run()) if call.op == "MatMul"] == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]


def test_a_cell_around_an_optimizer_belongs_to_the_step_it_began_in(tmp_path: Path) -> None:
    """Model.train calls the optimizer inside a Cell, which returns when the step is over."""
    optimizer = Optimizer()
    recorded = Recorded(tmp_path / "run", live={id(optimizer)})
    x = FakeTensor(np.zeros(2, np.float32))
    for _ in range(2):
        outer = recorded.book.enter_cell(Cell(), [], optimizer=False)
        recorded.call("MatMul", [x], [], BACK)
        inner = recorded.book.enter_cell(optimizer, [], optimizer=True)
        recorded.book.leave_cell(inner, [], STEPPING, None)
        recorded.book.leave_cell(outer, [], HERE, None)
    found = [
        (call.step, call.op.rpartition(".")[2], call.name)
        for call in calls(recorded.run())
        if call.level == "module"
    ]
    assert [(step, op) for step, op, _ in found] == [
        (0, "Cell"),
        (0, "Optimizer"),
        (1, "Cell"),
        (1, "Optimizer"),
    ]
    assert len({(step, name) for step, _, name in found}) == 4


def test_only_what_was_chosen(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "run", "--set-dump")
    inner = Cell()
    root = Cell(fc=inner)
    recorded.chosen.choose(inner, enabled=True)
    recorded.chosen.choose("Exp", enabled=True)
    x = FakeTensor(np.zeros(2, np.float32))
    outer = recorded.book.enter_cell(root, [], optimizer=False)
    recorded.call("Mul", [x], [])
    recorded.call("Exp", [x], [])
    scope = recorded.book.enter_cell(inner, [], optimizer=False)
    recorded.call("Mul", [x], [])
    recorded.book.leave_cell(scope, [], HERE, None)
    recorded.book.leave_cell(outer, [], HERE, None)
    assert [call.name for call in calls(recorded.run())] == [
        "<root>:Exp#1",
        "fc:Cell#1",
        "fc:Mul#1",
    ]


def test_the_gradient_of_a_chosen_cell_is_chosen_with_it(tmp_path: Path) -> None:
    """A gradient runs when every Cell has ended: its module is that of the forward call whose
    tensors it reads.
    """
    recorded = Recorded(tmp_path / "run", "--set-dump")
    first, second = Cell(), Cell()
    root = Cell(first=first, second=second)
    recorded.chosen.choose(first, enabled=True)
    x, y, z, d = (FakeTensor(np.full(3, value, np.float32)) for value in (1, 2, 3, 4))
    outer = recorded.book.enter_cell(root, [], optimizer=False)
    for cell, op, read, made in ((first, "ReLU", x, y), (second, "Tanh", y, z)):
        scope = recorded.book.enter_cell(cell, [], optimizer=False)
        recorded.call(op, [read], [made])
        recorded.book.leave_cell(scope, [], HERE, None)
    recorded.book.leave_cell(outer, [], HERE, None)
    recorded.call("TanhGrad", [z, FakeTensor(np.full(3, 9, np.float32))], [d], BACK)
    recorded.call("ReluGrad", [d, y], [FakeTensor(np.full(3, 5, np.float32))], BACK)
    assert [call.name for call in calls(recorded.run())] == [
        "first:Cell#1",
        "first:ReLU#1",
        "first:ReluGrad~bwd#1",
    ]


def test_choices_as_kernels_of_compiled_graphs_know_them(tmp_path: Path) -> None:
    inner = Cell()
    root = Cell(fc=inner, head=Cell())
    chosen = Chosen()
    assert path_from_the_root(inner) == "fc"
    chosen.choose(root, enabled=True)
    chosen.choose(inner, enabled=False)
    chosen.choose("Mat*", enabled=True)
    other = Chosen()
    other.adopt(chosen.words())
    for each in (chosen, other):
        assert each.wants_kernel(
            "Relu", "Default/network-W/_backbone-N/head-Dense/Relu-op1", "network._backbone.head"
        )
        assert not each.wants_kernel(
            "Relu", "Default/network-W/_backbone-N/fc-Dense/Relu-op1", "network._backbone.fc"
        )
        assert each.wants_kernel(
            "MatMul", "Default/network-W/_backbone-N/fc-Dense/MatMul-op1", "network._backbone.fc"
        )
    assert read_choices(tmp_path) == Chosen().words()


def lay(dump: Path, graph: int, begun: int, values: tuple[Any, Any], op: str = "Exp") -> Path:
    folder = dump / f"rank_0/Net/{graph}/3"
    folder.mkdir(parents=True)
    for io, content in zip(("input", "output"), values, strict=True):
        np.save(
            folder / f"{op}.Default_{op}-op0.0.0.{begun}.{io}.0.DefaultFormat.Float32.npy", content
        )
    return folder


def test_compiled_parts_stand_where_they_ran(recorded: Recorded) -> None:
    """Two folders that landed between two primitives: in the order they began, in the Cell around
    them.
    """
    place, dump = make_place(recorded.path, process_facts())
    waited: list[bool] = []
    recorded.book.compiled = CompiledParts(
        place, Facts(process=process_facts(), dump=str(dump)), lambda: waited.append(True)
    )
    one, two, three, four = (np.full(3, value, np.float32) for value in (1, 2, 3, 4))
    root = Cell()
    scope = recorded.book.enter_cell(root, [], optimizer=False)
    recorded.call("Mul", [FakeTensor(np.zeros(3, np.float32))], [FakeTensor(one)])
    recorded.book.compiled.claim(counts=False)
    facts = read_facts(place)
    assert facts is not None
    assert facts.taken_inside
    later, sooner = (
        lay(dump, 7, 1_700_000_000_000_002, (two, three)),
        lay(dump, 8, 1_700_000_000_000_001, (one, two)),
    )
    assert began(sooner) < began(later)
    recorded.book.take_compiled()
    recorded.call("Mul", [FakeTensor(three)], [FakeTensor(four)])
    recorded.book.leave_cell(scope, [("0", FakeTensor(four))], HERE, None)
    assert waited
    assert not later.exists()
    run = recorded.run()
    operators = [call for call in calls(run) if call.level == "operator"]
    assert [call.op for call in operators] == ["Mul", "Exp", "Exp", "Mul"]
    assert len({(call.process, call.step, call.name) for call in operators}) == 4
    assert {call.parent for call in operators} == {0}


def test_a_dump_of_the_users_is_read_and_stays(
    recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, _ = make_place(recorded.path, process_facts())
    dump, one = tmp_path / "theirs", np.ones(3, np.float32)
    earlier = lay(dump, 1, 1_700_000_000_000_001, (one, one), "Log")
    facts = Facts(process=process_facts(), dump=str(dump), owned=False)
    recorded.book.compiled = CompiledParts(place, facts, lambda: None)
    recorded.call("Mul", [FakeTensor(one)], [FakeTensor(one)])
    recorded.book.compiled.claim(counts=False)
    assert "holds an earlier dump" in capsys.readouterr().err
    assert not (place / "data_dump.json").exists()
    now = lay(dump, 2, 1_700_000_000_000_002, (one, one))
    for _ in range(2):
        recorded.book.take_compiled()
    recorded.book.drop_compiled()
    assert now.exists()
    assert earlier.exists()
    assert [call.op for call in calls(recorded.run())] == ["Mul", "Exp"]


def test_what_raises_and_what_cannot_be_read_pass_through_cells(recorded: Recorded) -> None:
    class Watched(Cell):
        pass

    pynative = PyNative(recorded.book, FakeTensor, lambda: (Optimizer,), compiles=lambda: False)
    back = watch_cells(Watched, pynative)
    net = Watched(inner=Watched())
    x = FakeTensor(np.zeros(2, np.float32))
    assert net(x) == [x]
    with pytest.raises(ValueError, match="no data"):
        net("no data")
    assert recorded.book.scopes == []
    back()
    net(x)
    found = list(calls(recorded.run()))
    assert [(call.name, call.error) for call in found] == [
        ("<root>:Watched#1", None),
        ("inner:Watched#1", None),
        ("<root>:Watched#2", "ValueError: no data"),
    ]


def test_a_primitive_that_raises_keeps_its_inputs(recorded: Recorded) -> None:
    class Failing:
        name = "Gather"

        def __call__(self, *args: Any) -> Any:
            raise IndexError("out of range")

    pynative = PyNative(recorded.book, FakeTensor, lambda: (Optimizer,), compiles=lambda: False)
    with pytest.raises(IndexError):
        pynative.run(Failing(), (FakeTensor(np.ones(2, np.float32)),), None)
    run = recorded.run()
    (call,) = calls(run)
    assert call.error == "IndexError: out of range"
    assert [run.value(row).tolist() for row in tensors_of(run, call)] == [[1.0, 1.0]]


class Later:
    """Kernels that run after their primitive returned: what one raises is told to the first that
    waits, once.
    """

    name = "Gather"

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.pending: Exception | None = None

    def __call__(self, *args: Any) -> Any:
        self.pending = self.errors.pop(0)
        return FakeTensor(np.zeros(2, np.float32))

    def settle(self) -> None:
        error, self.pending = self.pending, None
        if error is not None:
            raise error


def test_what_a_kernel_raises_later_reaches_the_program_and_the_row(recorded: Recorded) -> None:
    later = Later(None, RuntimeError("out of range"))
    pynative = PyNative(
        recorded.book, FakeTensor, lambda: (Optimizer,), compiles=lambda: False, settle=later.settle
    )
    x = FakeTensor(np.ones(2, np.float32))
    pynative.run(later, (x,), None)
    with pytest.raises(RuntimeError, match="out of range"):
        pynative.run(later, (x,), None)
    assert [(call.op, call.error) for call in calls(recorded.run())] == [
        ("Gather", None),
        ("Gather", "RuntimeError: out of range"),
    ]


def test_what_a_kernel_that_nobody_watched_raises_is_no_row_of_the_next(recorded: Recorded) -> None:
    class Watched(Cell):
        def __call__(self, value: Any) -> Any:
            later(value)
            return value

    later = Later(RuntimeError("first"), RuntimeError("second"), None)
    pynative = PyNative(
        recorded.book, FakeTensor, lambda: (Optimizer,), compiles=lambda: False, settle=later.settle
    )
    x = FakeTensor(np.ones(2, np.float32))
    back = watch_cells(Watched, pynative)
    with pytest.raises(RuntimeError, match="first"):
        Watched()(x)
    back()
    assert recorded.book.scopes == []
    later(x)
    with pytest.raises(RuntimeError, match="second"):
        pynative.run(later, (x,), None)
    assert [(call.level, call.error) for call in calls(recorded.run())] == [
        ("module", "RuntimeError: first")
    ]


def test_paths_of_cells(recorded: Recorded) -> None:
    leaf = Cell()
    middle = Cell(fc=leaf, other=None)
    root = Cell(blocks=Cell(**{"0": middle}))
    outer = recorded.book.enter_cell(root, [], optimizer=False)
    assert (outer.module, path_below(None, root)) == ("", "")
    inner = recorded.book.enter_cell(middle, [], optimizer=False)
    assert (inner.module, path_below(inner, leaf), path_below(outer, Cell())) == (
        "blocks.0",
        "blocks.0.fc",
        "Cell",
    )


def test_elements_that_numpy_lacks() -> None:
    assert array_of(FakeTensor(np.zeros(1), "Odd")) is None


def test_the_site_of_a_call_in_this_file() -> None:
    site = site_of(sys._getframe())
    assert site.phase == "forward"
    assert site.source is not None
    assert site.source.startswith(f"{__file__}:")
