# SPDX-License-Identifier: Apache-2.0
"""Graphs that raise: the kernel that did, with what it read, from the files of others and from the
program; nobody else is accused.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opscope
from opscope.formats.mindspore.failed import first_paragraph
from opscope.record.config import parse_options
from opscope.record.mindspore.place import RAISED, Facts, make_place, write_facts
from opscope.record.mindspore.raised import teller
from opscope.record.mindspore.watch import Dumps
from opscope.run.query import calls, tensors_of
from opscope.run.store.layout import create_run, process_facts, seal_run

HEAD = """\
# IR entry: @kernel_graph0
# Total params: 4
# Params:
%para1_ids: <Tensor[Int32], (2)> : [2]  :  <Int32xDefaultFormat[const vector]{2}>  :  IsWeight: false
%para2_words: <Ref[Tensor[Float32]], (6, 2), ref_key=words, is_parameter>  :  has_default  :  IsWeight: true
%para3_spots0: <Tensor[Int32], (2)> : [2]  :  <Int32xDefaultFormat[const vector]{2}>  :  IsWeight: false
%para4_places: <Ref[Tensor[Float32]], (8, 2), ref_key=places, is_parameter>  :  has_default  :  IsWeight: true

subgraph @kernel_graph0() {
"""
NODE = """\
  %{number}(node) = {op}({operands}) primitive_attrs: {{}} cnode_attrs: {{}} cnode_primal_attrs: {{}}
      : ({reads}) -> (<Tensor[{made}], (2, 2)>)
      # Fullname with scope: (Default/{op}-op{k})
      # In file /home/me/net.py:{line}~{line}, 4~9/    x/
"""
FLOATS, WHOLE = "<Tensor[Float32], (6, 2)>", "<Tensor[Int32], (2)>"
NODES = (
    NODE.format(
        number=0,
        op="Add",
        operands="%para1_ids, %para1_ids",
        reads=f"{WHOLE}, {WHOLE}",
        made="Int32",
        k=0,
        line=10,
    ),
    NODE.format(
        number=1,
        op="Gather",
        operands="%para2_words, %0, I64(0)",
        reads=f"{FLOATS}, {WHOLE}",
        made="Float32",
        k=0,
        line=11,
    ),
    NODE.format(
        number=2,
        op="Gather",
        operands="%para4_places, %para3_spots0, I64(0)",
        reads=f"<Tensor[Float32], (8, 2)>, {WHOLE}",
        made="Float32",
        k=1,
        line=12,
    ),
    NODE.format(
        number=3,
        op="Mul",
        operands="%1, %2",
        reads="<Tensor[Float32], (2, 2)>, <Tensor[Float32], (2, 2)>",
        made="Float32",
        k=0,
        line=13,
    ),
)
ERROR = (
    "For 'Gather', the 'input_indices' should be in the range [0, 6), but got {}\n\n-----\n- "
    "C++ Call Stack: (x)\n-----\nkernel.cc:9"
)


class Held:
    """What is asked of a MindSpore tensor or parameter."""

    def __init__(self, values: Any, name: str | None = None) -> None:
        self.values = np.asarray(values)
        self.name, self.dtype, self.shape = name, "any", self.values.shape

    def asnumpy(self) -> Any:
        return self.values


class Net:
    """A Cell with its parameters; construct is what the graph was compiled from."""

    def __init__(self) -> None:
        words, places = np.arange(12, dtype=np.float32).reshape(6, 2), np.ones((8, 2), np.float32)
        self._params = {"words": Held(words, "words"), "places": Held(places, "places")}

    def construct(self, ids: Any, *spots: Any) -> None:
        raise NotImplementedError


class Program:
    """A process under recording whose graph raises as MindSpore's does."""

    def __init__(self, path: Path) -> None:
        self.path = create_run(path / "run", command=["python"], config={}, version="0", run_id="x")
        self.place, self.dump = make_place(self.path, process_facts())
        write_facts(self.place, Facts(process=process_facts(), dump=str(self.dump)))
        graphs = self.dump / "rank_0/graphs"
        graphs.mkdir(parents=True)
        (graphs / "ms_output_trace_code_graph_0.ir").write_text(HEAD + "".join(NODES) + "}\n")

    def lay(self, name: str, io: str, slot: int, values: Any) -> None:
        folder = self.dump / "rank_0/Net/0/2"
        folder.mkdir(parents=True, exist_ok=True)
        kind = np.asarray(values).dtype.name.capitalize()
        time = 1_700_000_000_000_000 + len(list(folder.iterdir()))
        np.save(
            folder / f"{name.partition('-')[0]}.Default_{name}.0.0.{time}.{io}.{slot}"
            f".DefaultFormat.{kind}.npy",
            values,
        )

    def lay_add(self, total: int) -> None:
        ids = np.array([0, total // 2], np.int32)
        for slot, io in ((0, "input"), (1, "input"), (0, "output")):
            self.lay("Add-op0", io, slot, ids + ids if io == "output" else ids)

    def lay_places(self) -> None:
        self.lay("Gather-op1", "input", 0, np.ones((8, 2), np.float32))
        self.lay("Gather-op1", "input", 1, np.array([1, 7], np.int32))
        self.lay("Gather-op1", "output", 0, np.ones((2, 2), np.float32))

    def raises(
        self, text: str, *, function: str = "_exec_pip", kind: type[Exception] = RuntimeError
    ) -> None:
        source = f"def {function}(self, obj, *args):\n    raise kind(text)\n"
        names: dict[str, Any] = {"kind": kind, "text": text}
        exec(compile(source, "/x/site-packages/mindspore/graph/api.py", "exec"), names)
        try:
            names[function](
                None, Net(), Held(np.array([0, 5], np.int32)), Held(np.array([1, 7], np.int32))
            )
        except kind as error:
            teller(self.place, self.dump)(error)

    def run(self, signal: int | None = None) -> Any:
        dumps = Dumps(self.path, parse_options(""))
        if signal is not None:
            dumps.died(os.getpid(), signal)
        dumps.close()
        self.notes = dumps.notes
        seal_run(self.path)
        assert not (self.place / RAISED).exists()
        return opscope.open_run(self.path)

    def failed(self) -> list[tuple[Any, dict[str, Any]]]:
        run = self.run()
        return [
            (
                call,
                {
                    row.slot: (row.tensor_name, run.value(row).tolist())
                    for row in tensors_of(run, call)
                },
            )
            for call in calls(run)
            if call.error is not None
        ]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_inputs_come_from_the_kernels_that_made_them_and_from_the_program(program: Program) -> None:
    program.lay_add(10)
    program.raises(ERROR.format(10))
    ((call, inputs),) = program.failed()
    assert (call.op, call.step, call.source, call.index) == ("Gather", 2, "/home/me/net.py:11", 1)
    assert (
        call.error
        == "RuntimeError: For 'Gather', the 'input_indices' should be in the range [0, 6), but "
        "got 10"
    )
    assert inputs == {"0": ("words", Net()._params["words"].values.tolist()), "1": (None, [0, 10])}


def test_of_two_kernels_of_one_primitive_the_one_that_holds_the_number(program: Program) -> None:
    program.lay_add(10)
    program.raises(ERROR.format(7))
    ((call, inputs),) = program.failed()
    assert (call.source, inputs["1"]) == ("/home/me/net.py:12", ("spots0", [1, 7]))


def test_two_that_cannot_be_told_apart_are_both_named_and_neither_accused(program: Program) -> None:
    program.lay_add(10)
    program.raises(ERROR.format("something else"))
    assert program.failed() == []
    assert any("net.py:11" in note and "net.py:12" in note for note in program.notes)


def test_the_first_kernel_of_a_graph_leaves_no_folder(program: Program) -> None:
    program.raises(ERROR.format(7))
    ((call, _),) = program.failed()
    assert (call.step, call.source) == (0, "/home/me/net.py:12")


def test_a_kernel_that_was_dumped_though_it_failed_has_no_outputs(program: Program) -> None:
    program.lay_add(10)
    for io, slot, values in (
        ("input", 0, np.ones((6, 2), np.float32)),
        ("input", 1, np.array([0, 10], np.int32)),
    ):
        program.lay("Gather-op0", io, slot, values)
    program.lay("Gather-op0", "output", 0, np.ones((2, 2), np.float32))
    text = (
        "-----\n- Kernel error:\n-----\nLaunch kernel failed: Default/Gather-op0\n\n-----\n- "
        "The Function Call Stack: (x)\n"
    )
    program.raises(text)
    ((call, inputs),) = program.failed()
    assert (call.op, call.error) == (
        "Gather",
        "RuntimeError: Launch kernel failed: Default/Gather-op0",
    )
    assert inputs == {"0": ("words", [[1, 1]] * 6), "1": (None, [0, 10])}


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("no more data", "_exec_pip"),
        (ERROR.format(10).replace("Gather", "Gathering"), "_exec_pip"),
        (ERROR.format(10), "compile"),
    ],
)
def test_errors_that_no_kernel_raised_accuse_nobody(
    program: Program, text: str, function: str
) -> None:
    program.lay_add(10)
    program.raises(text, function=function)
    assert program.failed() == []


def test_kernels_that_had_not_what_they_read_or_ran_to_the_end_are_not_accused(
    program: Program,
) -> None:
    program.lay_add(10)
    folder = program.dump / "rank_0/Net/0/2"
    np.save(
        folder / "Parameter.words.0.0.1700000000000099.output.0.DefaultFormat.Float32.npy",
        np.ones((6, 2), np.float32),
    )
    program.raises(ERROR.format(10).replace("Gather", "Mul"))
    assert program.failed() == []


def test_what_the_text_says_first() -> None:
    assert (
        first_paragraph(
            "\n----------\n- Kernel error:\n----------\nLaunch kernel failed: A\nmore\n\nrest"
        )
        == "Launch kernel failed: A\nmore"
    )
    assert first_paragraph("one line") == "one line"
    assert first_paragraph("") == ""


def test_a_process_that_died_in_a_kernel_names_it_where_it_is_one(program: Program) -> None:
    program.lay_add(4)
    program.lay_places()
    run = program.run(signal.SIGSEGV)
    (died,) = [call for call in calls(run) if call.error is not None]
    assert (died.op, died.source, died.error) == ("Gather", "/home/me/net.py:11", "unfinished")


def test_of_several_kernels_that_had_begun_none_is_accused(program: Program) -> None:
    program.lay_add(4)
    assert [call.op for call in calls(program.run(signal.SIGSEGV)) if call.error is not None] == []
    (note,) = program.notes
    assert "died of signal 11" in note
    assert "net.py:11" in note
    assert "net.py:12" in note


def test_a_signal_that_somebody_sends_accuses_nobody(program: Program) -> None:
    program.lay_add(4)
    program.lay_places()
    assert [call.op for call in calls(program.run(signal.SIGKILL)) if call.error is not None] == []
    assert program.notes == []
