# SPDX-License-Identifier: Apache-2.0
"""Graphs that MindSpore's dump refuses run without it; what the program itself raises passes
unchanged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from opscope.record.mindspore.undumped import Undumped, pynative_mode, survive

REFUSED = (
    "Unexpected type Complex\n\n- C++ Call "
    "Stack:\nmindspore/ccsrc/tools/data_dump/debugger/debugger_proto_exporter.cc:604 Get"
)
OWN = "For 'Mul', shapes do not fit\n\n- C++ Call Stack:\nmindspore/core/ops/mul.cc:12 Infer"


class World:
    """Cells and @jit functions of a program in graph mode; what compile() raises is said by
    error.
    """

    def __init__(self, error: str | None) -> None:
        world = self
        self.eager, self.compiled, self.error = False, 0, error

        class Cell:
            def __call__(self, value: int) -> str:
                if world.eager:
                    return f"eager {value}"
                world.compile()
                return f"graph {value}"

        class Executor:
            def __init__(self, fn: Any) -> None:
                self.fn = fn

            def __call__(self, value: int) -> str:
                world.compile()
                return f"graph {value}"

        self.Cell, self.Executor = Cell, Executor
        self.back = survive(Undumped(self.mode), Cell, Executor)

    def compile(self) -> None:
        """Named as MindSpore's own function is."""
        self.compiled += 1
        if self.error is not None and not self.eager:
            raise RuntimeError(self.error)

    @contextlib.contextmanager
    def mode(self) -> Iterator[None]:
        self.eager = True
        try:
            yield
        finally:
            self.eager = False


def test_a_refused_graph_runs_eagerly_and_is_not_compiled_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World(REFUSED)
    cell = world.Cell()
    assert [cell(1), cell(2)] == ["eager 1", "eager 2"]
    assert world.compiled == 1
    assert not world.eager
    said = capsys.readouterr().err
    assert said.count("opscope: MindSpore's dump fails on the graph of") == 1
    assert "(Unexpected type Complex)" in said


def test_a_function_is_known_again_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    def square(value: int) -> str:
        return f"plain {value}"

    world = World(REFUSED)
    assert [world.Executor(square)(1), world.Executor(square)(2)] == ["plain 1", "plain 2"]
    assert world.compiled == 1
    assert (
        "graph of test_a_function_is_known_again_by_itself.<locals>.square"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("error", [OWN, "data_dump"])
def test_an_error_of_the_program_is_the_programs(
    error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match=error[:9]):
        World(error).Cell()(1)
    assert capsys.readouterr().err == ""


def test_nothing_changes_for_sound_graphs_and_it_can_be_taken_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World(None)
    assert world.Cell()(3) == "graph 3"
    patched = world.Cell.__call__
    world.back()
    assert world.Cell.__call__ is not patched
    assert capsys.readouterr().err == ""


def test_the_mode_of_the_program_is_put_back_whatever_happens() -> None:
    class Context:
        PYNATIVE_MODE = 1
        mode = 0

        def get_context(self, name: str) -> int:
            return self.mode

        def set_context(self, *, mode: int) -> None:
            self.mode = mode

    context, seen = Context(), []

    def inside() -> None:
        with pynative_mode(context):
            seen.append(context.mode)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        inside()
    assert (seen, context.mode) == ([1], 0)
