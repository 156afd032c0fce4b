# SPDX-License-Identifier: Apache-2.0
"""Replays of what a device captured are calls that read and write what the captured operators did;
a stand-in of the graph's class captures on the host here.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from opscope.record.torch import device_graphs
from tests.record.recorded import record


class Graph:
    """Stands for torch.cuda.CUDAGraph: replays a function that nobody sees."""

    def __init__(self, work: Any = lambda: None) -> None:
        self.work, self.capturing = work, False

    def capture_begin(self, pool: Any = None) -> None:
        self.capturing = True

    def capture_end(self) -> None:
        assert self.capturing
        self.capturing = False

    def replay(self) -> str:
        self.work()
        return "replayed"


@pytest.fixture(autouse=True)
def _imported(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("graphs_of_a_device")
    module.Graph = type("Graph", (Graph,), {**vars(Graph)})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(device_graphs, "OWNERS", {module.__name__: "Graph"})


def graph(work: Any = lambda: None) -> Any:
    return sys.modules["graphs_of_a_device"].Graph(work)  # type: ignore[attr-defined]


@pytest.mark.parametrize("plain", [False, True])
def test_a_replay_reads_and_writes_what_was_captured(tmp_path: Any, *, plain: bool) -> None:
    def program() -> None:
        x, count = torch.ones(3, 4), torch.zeros(3, 4)
        captured = graph()
        captured.capture_begin(pool=None)
        y = torch.log(x * 1)
        count.add_(1)
        captured.capture_end()
        made, counted, given = y.numpy(), count.numpy(), x.numpy()
        captured.work = lambda: (made.fill(float(given.min())), counted.__iadd__(1))
        x.copy_(torch.full((3, 4), 2.0))
        assert captured.replay() == "replayed"
        y.sum()
        x.copy_(torch.full((3, 4), float("nan")))
        captured.replay()
        y.exp()
        count.sum()

    found = record(tmp_path, program, plain=plain)
    replays = found.all("compiled::")
    assert [call.op for call in replays] == ["compiled::replay_0"] * 2
    first, second = replays
    copies = found.all("aten::copy_")
    assert found.inputs(first)["0"].version == found.outputs(copies[0])["0"].version
    written = found.outputs(first)
    assert [(row.min, row.max) for row in written.values()] == [(2.0, 2.0), (2.0, 2.0)]
    assert sorted(row.nan for row in found.outputs(second).values()) == [0, 12]
    sums = found.all("aten::sum")
    assert found.inputs(sums[0])["0"].version in {row.version for row in written.values()}
    (exp,) = found.all("aten::exp")
    nan = next(row for row in found.outputs(second).values() if row.nan)
    assert found.inputs(exp)["0"].version == nan.version
    assert found.inputs(sums[1])["0"].max == 3.0


def test_what_the_program_let_go_of_is_neither_read_nor_kept(tmp_path: Any) -> None:
    def program() -> None:
        captured = graph()
        captured.capture_begin()
        torch.ones(3).neg()
        captured.capture_end()
        captured.replay()

    found = record(tmp_path, program)
    (call,) = found.all("compiled::")
    assert found.all("aten::neg")
    assert not found.inputs(call)
    assert not found.outputs(call)


def test_an_error_is_the_programs(tmp_path: Any) -> None:
    def program() -> None:
        def fails() -> None:
            raise RuntimeError("an illegal memory access was encountered")

        captured = graph(fails)
        captured.capture_begin()
        captured.capture_end()
        with pytest.raises(RuntimeError, match="illegal memory access"):
            captured.replay()

    (call,) = record(tmp_path, program).all("compiled::")
    assert "illegal memory access" in (call.error or "")


def test_what_was_captured_before_is_replayed_unseen(tmp_path: Any) -> None:
    captured = graph()
    captured.capture_begin()
    captured.capture_end()
    assert not record(tmp_path, captured.replay).all("compiled::")
    assert type(captured).replay is Graph.replay
    assert type(captured).capture_begin is Graph.capture_begin


def test_a_capture_leaves_modes_as_they_were(tmp_path: Any) -> None:
    def program() -> None:
        stack = torch.utils._python_dispatch._get_current_dispatch_mode_stack
        before = stack()
        captured = graph()
        captured.capture_begin()
        torch.ones(3)
        captured.capture_end()
        assert stack() == before

    assert len(record(tmp_path, program).all("aten::ones")) == 1
