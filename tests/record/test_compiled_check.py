# SPDX-License-Identifier: Apache-2.0
"""`--check` holds compiled graphs against their own operators, and cuts those that deviate."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.utils.checkpoint import checkpoint

import opscope
from opscope.record.torch.compiled import interpreted
from opscope.record.torch.windows import judge
from opscope.run.finding import Finding
from tests.oldest import COMPILES_AGAIN, not_in_oldest
from tests.record.hidden_backend import hidden, hiding

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_process")]


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def replacing(wrong: Any, other: Callable[..., Any]) -> Callable[..., Any]:
    """A back end that takes another function for one of the graph's."""

    def backend(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        for each in module.modules():  # its own graph, and those within
            if isinstance(each, torch.fx.GraphModule):
                for node in each.graph.nodes:
                    if node.target == wrong:
                        node.target = other
                each.recompile()
        return module.forward

    return backend


def checked(place: Path, program: Callable[[], object]) -> list[Finding]:
    with opscope.record(place, check=True):
        program()
    return [each for each in opscope.scan(place).findings if each.kind == "compiled-mismatch"]


def gated(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    hidden_state = torch.tanh(x @ weight)
    gate = torch.sigmoid(hidden_state)
    return (hidden_state * gate).sum(1)


def test_the_operator_that_a_compiler_took_for_another_is_named(tmp_path: Path) -> None:
    backend = replacing(torch.sigmoid, torch.tanh)
    compiled = torch.compile(gated, backend=backend)
    (found,) = checked(tmp_path / "run", lambda: compiled(torch.randn(6, 4), torch.randn(4, 8)))
    assert found.confidence == "proven"
    assert found.op is not None
    assert found.op.startswith("compiled::graph")
    assert "so it is when only sigmoid at" in found.reasons[2]
    line = gated.__code__.co_firstlineno + 2
    assert (found.source or "").endswith(f"{Path(__file__).name}:{line}")


def test_a_write_that_is_lost_is_one_of_the_inputs_that_the_graph_writes_to(tmp_path: Path) -> None:
    def store(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        doubled = x + x
        cache[1:] = doubled[:-1]
        return doubled.sum()

    compiled = torch.compile(store, backend=replacing(operator.setitem, lambda *_: None))
    (found,) = checked(tmp_path / "run", lambda: compiled(torch.randn(6, 4), torch.zeros(6, 4)))
    assert "of output 1 is" in found.reasons[1]
    assert "setitem" in found.reasons[2]


@not_in_oldest("a module is one node of a graph")
def test_the_module_of_the_node_is_named(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    compiled = torch.compile(
        model, backend=replacing(torch._C._nn.gelu, lambda x, **_: torch.relu(x))
    )
    with torch.no_grad():
        (found,) = checked(tmp_path / "run", lambda: compiled(torch.randn(6, 4)))
    assert found.module == "1"


def discontinuous(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    score = torch.softmax(x @ weight, -1)
    return score.argmax(-1), score > score.mean(), torch.round(score * 8), score.topk(2).indices


def in_float32(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """A back end that keeps narrow types wide inside of a graph, as fused kernels do."""

    def run(*given: Any) -> Any:
        wide = [each.float() if each.is_floating_point() else each for each in given]
        return tuple(
            each.to(given[0].dtype) if each.is_floating_point() else each
            for each in module.forward(*wide)
        )

    return run


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", [in_float32, hidden])
def test_a_compiler_that_rounds_less_is_not_accused(
    backend: Any, dtype: torch.dtype, tmp_path: Path
) -> None:
    compiled = torch.compile(discontinuous, backend=backend)

    def program() -> None:
        for _ in range(3):
            compiled(torch.randn(64, 32, dtype=dtype), torch.randn(32, 48, dtype=dtype))

    assert not checked(tmp_path / "run", program)


def test_other_random_numbers_are_not_another_result(tmp_path: Path) -> None:
    def drawing(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5) * 2

    def otherwise(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            torch.rand(3)
            return module.forward(*given)

        return run

    compiled = torch.compile(drawing, backend=otherwise)
    assert not checked(tmp_path / "run", lambda: compiled(torch.randn(64)))
    facts = opscope.open_run(tmp_path / "run").processes[0].checked
    assert any("random numbers" in each["reason"] for each in facts["unjudged"].values())


def dropping(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    kept = nn.functional.dropout(torch.tanh(x @ weight), 0.5)
    gate = torch.sigmoid(kept)
    return nn.functional.dropout(kept * gate, 0.2).sum(1)


def dropped(place: Path, backend: Any) -> list[Finding]:
    torch._dynamo.reset()
    compiled = torch.compile(dropping, backend=backend)
    x, weight = torch.randn(6, 4), torch.randn(4, 8, requires_grad=True)
    return checked(place, lambda: compiled(x, weight).sum().backward())


def test_a_graph_that_draws_is_compiled_once_more_for_both_of_its_passes(tmp_path: Path) -> None:
    compiled: list[Any] = []

    def counting(module: torch.fx.GraphModule, inputs: Any) -> Any:
        compiled.append(module)
        return hidden(module, inputs)

    assert not dropped(tmp_path / "run", counting)
    assert not opscope.open_run(tmp_path / "run").processes[0].checked["unjudged"]
    assert len(compiled) == 2


def test_a_graph_that_draws_is_judged_by_the_draws_of_its_operators(tmp_path: Path) -> None:
    assert not dropped(tmp_path / "right", hidden)
    assert not opscope.open_run(tmp_path / "right").processes[0].checked["unjudged"]
    (found,) = dropped(tmp_path / "forward", replacing(torch.sigmoid, torch.tanh))
    assert (found.phase, found.confidence) == ("forward", "proven")
    assert "so it is when only sigmoid at" in found.reasons[2]
    twice = aot_autograd(fw_compiler=hiding, bw_compiler=doubling)
    (found,) = dropped(tmp_path / "backward", twice)
    assert found.phase == "backward"


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_what_is_wrong_inside_of_a_checkpoint_is_named(tmp_path: Path, share: float) -> None:
    def block(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = nn.functional.dropout(torch.tanh(x @ weight), share)
        return kept, torch.sigmoid(kept)

    def model(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        kept, gate = checkpoint(block, x * 2, weight, use_reentrant=False)
        return (kept * gate).sum(1)

    compiled = torch.compile(model, backend=replacing(torch.sigmoid, torch.tanh))
    x, weight = torch.randn(6, 4), torch.randn(4, 8, requires_grad=True)
    (found,) = checked(tmp_path / "run", lambda: compiled(x, weight))
    assert "so it is when only sigmoid at" in found.reasons[2]
    torch._dynamo.reset()
    healthy = torch.compile(model, backend=replacing(torch.relu, torch.tanh))
    assert not checked(tmp_path / "healthy", lambda: healthy(x, weight))
    assert not opscope.open_run(tmp_path / "healthy").processes[0].checked["unjudged"]


def test_draws_that_changed_places_are_not_another_result(tmp_path: Path) -> None:
    def drawing(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x) * x + torch.rand_like(x)

    def swapped(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        first, second = (node for node in module.graph.nodes if node.target == torch.rand_like)
        first.prepend(second)
        module.recompile()
        return module.forward

    compiled = torch.compile(drawing, backend=swapped)
    assert not checked(tmp_path / "run", lambda: compiled(torch.randn(64)))


def test_what_a_conversion_leaves_undefined_is_nobodys_fault(tmp_path: Path) -> None:
    def bytes_of(x: torch.Tensor) -> torch.Tensor:
        return (x * 100).to(torch.int8) + 1

    backend = replacing("to", lambda x, dtype: x.clamp(-128, 127).to(dtype))

    def clamping(module: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        for node in module.graph.nodes:
            if node.op == "call_method" and node.target == "to":
                node.op = "call_function"
        return backend(module, inputs)

    compiled = torch.compile(bytes_of, backend=clamping)
    assert not checked(tmp_path / "run", lambda: compiled(torch.tensor([0.5, 3.0, -7.0])))
    facts = opscope.open_run(tmp_path / "run").processes[0].checked
    assert any("cannot hold" in each["reason"] for each in facts["unjudged"].values())


def test_infinity_that_the_compiler_made_is_the_compilers(tmp_path: Path) -> None:
    backend = replacing(torch.sigmoid, lambda x: x / (x - x))
    compiled = torch.compile(gated, backend=backend)
    with opscope.record(tmp_path / "run", check=True):
        compiled(torch.randn(6, 4).abs(), torch.randn(4, 8).abs())
    assert opscope.scan(tmp_path / "run").findings[0].kind == "compiled-mismatch"


def test_the_program_is_left_as_it_is(tmp_path: Path) -> None:
    def program() -> list[str]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        compiled = torch.compile(model, backend=replacing(torch.sigmoid, torch.tanh))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            loss = (compiled(torch.randn(8, 4)) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item().hex())
        return losses

    bare = program()
    with opscope.record(tmp_path / "run", check=True):
        assert program() == bare


def doubling(module: Any, inputs: Any) -> Any:
    """Compiles a backward graph to one whose gradients are twice what they are."""
    right = hiding(module, inputs)

    def run(given: list[Any]) -> Any:
        return [each * 2 if isinstance(each, torch.Tensor) else each for each in right(given)]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def test_gradients_that_a_compiler_makes_otherwise_are_told(tmp_path: Path) -> None:
    backend = aot_autograd(fw_compiler=hiding, bw_compiler=doubling)
    compiled = torch.compile(gated, backend=backend)
    x, weight = torch.randn(6, 4), torch.randn(4, 8, requires_grad=True)
    (found,) = checked(tmp_path / "run", lambda: compiled(x, weight).sum().backward())
    assert (found.phase, found.confidence) == ("backward", "proven")


@not_in_oldest(COMPILES_AGAIN)
@pytest.mark.parametrize(("budget", "checked_graphs"), [("0.001%", 1), ("all", 4)])
def test_later_executions_are_judged_as_far_as_the_one_budget_goes(
    budget: str, checked_graphs: int, tmp_path: Path
) -> None:
    compiled = torch.compile(gated, backend=hidden)
    with opscope.record(tmp_path / "run", check=True, budget=budget), torch.no_grad():
        for _ in range(4):
            compiled(torch.randn(6, 4), torch.randn(4, 8))
    run = opscope.open_run(tmp_path / "run")
    assert run.processes[0].checked["verdicts"]["agree"] == checked_graphs + 8


def test_what_no_rounding_explains_is_held_against_all_of_them() -> None:
    asked: list[int] = []

    def run(given: list[torch.Tensor]) -> list[torch.Tensor]:
        asked.append(1)
        return [given[0].cumsum(0)]

    given = [torch.full((4096,), 0.1)]
    (right,) = run(given)
    asked.clear()
    assert judge([right * 2], run, given) is not None
    assert len(asked) == 10  # operators, double precision, eight roundings


@not_in_oldest(COMPILES_AGAIN)
def test_a_graph_whose_results_are_alike_is_executed_once_more_and_no_oftener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(*given: Any) -> Any:
        asked.append(1)
        return interpreted(*given)

    monkeypatch.setattr("opscope.record.torch.compiled.interpreted", counted)
    compiled = torch.compile(gated, backend=hidden)
    with opscope.record(tmp_path / "run", check=True, budget="0%"), torch.no_grad():
        compiled(torch.randn(6, 4), torch.randn(4, 8))
    assert len(asked) == 1
