# SPDX-License-Identifier: Apache-2.0
"""Graphs that torch.compile made are calls, whatever the back end, and the program does not
notice.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import _disable_current_modes

from tests.oldest import COMPILES_AGAIN, IS_OLDEST, not_in_oldest
from tests.record.hidden_backend import hidden
from tests.record.recorded import Recorded, record

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def graphs(found: Recorded, **facts: Any) -> list[Any]:
    return [call for call in found.all("compiled::", **facts) if call.again is None]


def training(backend: Any, *, steps: int = 3) -> list[str]:
    """Losses of a model that breaks in the middle, is compiled for two shapes and has buffers that
    it writes to.
    """
    torch._dynamo.reset()
    torch.manual_seed(0)
    counters.clear()
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = model[0](x)
        torch._dynamo.graph_break()
        return model[3](model[2](model[1](y))).pow(2).mean()

    compiled = torch.compile(forward, backend=backend, dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        loss = compiled(torch.randn(8 if step < 2 else 6, 4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    return losses


def compilations() -> dict[str, Any]:
    """What Dynamo and AOTAutograd counted."""
    wanted = ("stats", "frames", "graph_break", "aot_autograd", "inductor")
    return {name: dict(counters[name]) for name in wanted}


@not_in_oldest(COMPILES_AGAIN)
@pytest.mark.parametrize("backend", [hidden, "aot_eager", "eager"], ids=["hidden", "aot", "eager"])
def test_the_program_does_not_notice(tmp_path: Path, backend: Any) -> None:
    bare = training(backend)
    counted = compilations()
    recorded: list[str] = []
    record(tmp_path, lambda: recorded.extend(training(backend)))
    assert recorded == bare
    assert compilations() == counted
    assert counted["stats"]["unique_graphs"] > 2


COMPILES = """
import torch
from torch import nn

def keeps(graph, _):
    print(graph.code)
    return graph.forward

model = torch.compile(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1)), backend=keeps)
for rows in (8, 6, 7):
    model(torch.ones(rows, 4)).sum().backward()
"""


@pytest.mark.zoo
def test_graphs_are_those_of_the_bare_program(tmp_path: Path) -> None:
    """Inputs in the same order, no hook in them: what a cache holds of the bare program fits."""
    program = tmp_path / "compiles.py"
    program.write_text(COMPILES, encoding="utf-8")
    recorded = (sys.executable, "-m", "opscope", "run", "-o", str(tmp_path / "run"), "--")
    bare, seen = (
        subprocess.run(
            [*command, sys.executable, str(program)], capture_output=True, text=True, check=True
        ).stdout
        for command in ((), recorded)
    )
    assert seen.startswith(bare)
    assert bare.count("def forward") == 2


@not_in_oldest(COMPILES_AGAIN)
def test_what_an_earlier_recording_saw_compiled_is_seen_by_the_next(tmp_path: Path) -> None:
    model = nn.Linear(4, 8)
    compiled = torch.compile(model, backend="aot_eager")

    def step() -> None:
        compiled(torch.ones(8, 4)).sum().backward()

    first = record(tmp_path / "first", step)
    between = counters["stats"]["unique_graphs"]
    step()
    later = [record(tmp_path / name, step) for name in ("second", "third")]
    assert counters["stats"]["unique_graphs"] == between
    for found in (first, *later):
        forward, backward = graphs(found)
        assert (forward.phase, backward.phase) == ("forward", "backward")
        assert backward.forward_index == forward.index
        assert list(found.run.processes[0].torch["graphs"]) == [
            forward.op.removeprefix("compiled::")
        ]


@not_in_oldest("hooks are called from outside of graphs, below a mode for each module")
def test_hooks_of_the_program_are_in_its_graphs(tmp_path: Path) -> None:
    entered: list[str] = []

    def enters(module: nn.Module, _: Any) -> None:
        entered.append(type(module).__name__)

    def compiles() -> None:
        torch._dynamo.reset()
        entered.clear()
        model = torch.compile(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), backend="eager")
        handle = nn.modules.module.register_module_forward_pre_hook(enters)
        try:
            model(torch.ones(8, 4))
            model(torch.ones(8, 4))
        finally:
            handle.remove()

    compiles()
    bare = [*entered]
    record(tmp_path, compiles)
    assert entered == bare
    assert bare


@pytest.mark.parametrize("plain", [False, True])
def test_every_execution_is_a_call(tmp_path: Path, *, plain: bool) -> None:
    found = record(tmp_path, lambda: training(hidden), plain=plain)
    forward, backward = graphs(found, phase="forward"), graphs(found, phase="backward")
    assert [call.step for call in forward] == [0, 0, 1, 1, 2, 2]
    assert len(backward) == 6
    partners = {call.index for call in forward}
    assert {call.forward_index for call in backward} == partners
    first = found.inputs(forward[0])
    assert [row.role for row in first.values()].count("parameter") == 2
    assert all(row.nan == 0 for row in found.outputs(forward[0]).values())
    told = found.run.processes[0].torch["graphs"]
    assert told[forward[0].op.removeprefix("compiled::")]["operators"] == 1
    assert any(facts["broken"] for facts in told.values())
    assert IS_OLDEST or any(facts["reason"] for facts in told.values())  # torch 2.4 tells none


@pytest.mark.parametrize("plain", [False, True])
def test_values_flow_through_graphs(tmp_path: Path, *, plain: bool) -> None:
    def program() -> None:
        double = torch.compile(lambda x: x * 2, backend=hidden)
        start = torch.ones(4) + 1
        (double(double(start)) - 1).sum()

    found = record(tmp_path, program, plain=plain)
    one, two = graphs(found)
    (after,) = found.all("aten::sub")
    made = [next(iter(found.outputs(call).values())).version for call in (one, two)]
    assert next(iter(found.inputs(two).values())).version == made[0]
    assert next(iter(found.inputs(after).values())).version == made[1]
    assert next(iter(found.outputs(two).values())).max == 8


@pytest.mark.parametrize("plain", [False, True])
def test_what_a_graph_writes_to_is_its_result(tmp_path: Path, *, plain: bool) -> None:
    def program() -> None:
        def step(x: torch.Tensor) -> torch.Tensor:
            x.mul_(3)
            return x.sum()

        data = torch.ones(4)
        torch.compile(step, backend=hidden)(data)
        data + 1

    found = record(tmp_path, program, plain=plain)
    (call,) = graphs(found)
    written = found.outputs(call)["0"]
    assert written.max == 3
    (after,) = found.all("aten::add")
    assert found.inputs(after)["0"].version == written.version


@pytest.mark.parametrize("plain", [False, True])
def test_what_nobody_said_a_graph_writes_to_is_its_result(tmp_path: Path, *, plain: bool) -> None:
    """Not its first execution either, of whatever number of inputs."""

    def silent(module: Any, _: Any) -> Any:
        def run(*given: Any) -> Any:
            with _disable_current_modes():
                return module.forward(*given)

        return run

    def program() -> None:
        def step(read: torch.Tensor, many: list[torch.Tensor]) -> torch.Tensor:
            for each in many:
                each.mul_(3)
            return many[0]

        many = [torch.ones(4) for _ in range(70)]
        torch.compile(step, backend=silent)(torch.ones(4), many) - 1
        many[69] + 1

    found = record(tmp_path, program, plain=plain)
    (call,) = graphs(found)
    rows = found.outputs(call)
    assert len(rows) == 70
    assert {row.max for row in rows.values()} == {3}
    for op in ("aten::sub", "aten::add"):
        (after,) = found.all(op)
        assert found.inputs(after)["0"].version in {row.version for row in rows.values()}


@not_in_oldest("its graphs drop the check of cholesky")
def test_an_error_in_a_graph_is_the_programs(tmp_path: Path) -> None:
    def program() -> None:
        def fails(x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.cholesky(x)

        with pytest.raises(torch.linalg.LinAlgError):
            torch.compile(fails, backend=hidden)(-torch.eye(2))

    found = record(tmp_path, program)
    (call,) = graphs(found)
    assert "LinAlgError" in (call.error or "")


def test_a_back_end_that_raises_is_the_programs(tmp_path: Path) -> None:
    def broken(module: Any, inputs: Any) -> Callable[..., Any]:
        raise RuntimeError("no code for this")

    def program() -> None:
        with pytest.raises(Exception, match="no code for this"):
            torch.compile(lambda x: x + 1, backend=broken)(torch.ones(2))

    found = record(tmp_path, program)
    assert not graphs(found)
    assert found.run.processes[0].missed is None


def test_nothing_is_left_once_a_recording_is_over(tmp_path: Path) -> None:
    from torch._dynamo.output_graph import OutputGraph

    before = OutputGraph.call_user_compiler
    compiled = torch.compile(lambda x: x * 2, backend=hidden)
    record(tmp_path, lambda: compiled(torch.ones(2)))
    assert OutputGraph.call_user_compiler is before
    assert compiled(torch.ones(2)).tolist() == [2, 2]


def test_what_prepares_a_second_execution_has_no_row(tmp_path: Path) -> None:
    compiled = torch.compile(lambda x: (x * 0).sqrt().sum(), backend=hidden)
    x = torch.ones(4, requires_grad=True)
    found = record(tmp_path, lambda: torch.autograd.grad(compiled(x), x))
    assert graphs(found, phase="backward")
    assert any(call.again is not None and call.phase == "backward" for call in found.calls)
    assert not [call for call in found.all("aten::detach", phase="backward") if call.again is None]
