# SPDX-License-Identifier: Apache-2.0
"""What a compiled graph writes in place, or gives to operators outside of it, beside the program
that was not compiled: what is another there is told, what a correct compiler makes is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.record.hidden_backend import hidden
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

import opscope
from opscope.record.torch.perturbed import Perturbed
from opscope.run.finding import Finding

pytestmark = pytest.mark.filterwarnings("ignore")
Program = Callable[[Callable[..., Any]], None]


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def rounding(module: Any, _: Any) -> Any:
    """A correct compiler: each result is rounded otherwise, and nobody says what is written to."""

    def run(*given: Any) -> Any:
        with _disable_current_modes(), Perturbed(0):
            return torch.fx.Interpreter(module).run(*given)

    return run


def beside_eager(tmp_path: Path, program: Program, backend: Any) -> list[Finding]:
    """What a comparison of the compiled program with itself uncompiled finds."""

    def whole(function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        made: Callable[..., Any] = torch.compile(function, backend=backend)
        return made

    for name, compiling in (("eager", whole), ("compiled", compiled)):
        torch.manual_seed(0)
        with opscope.record(tmp_path / name, values="none"):
            program(compiling)
    return opscope.compare(tmp_path / "compiled", tmp_path / "eager").document.findings


def batch_norm(compiling: Any) -> None:
    """Statistics that a norm keeps, written in a graph and read outside of it."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    forward, optimizer = compiling(model.forward), torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        forward(torch.randn(16, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(float(model[1].running_var.sum()), int(model[1].num_batches_tracked))


def cache(compiling: Any) -> None:
    """Keys of a decoder, written a row at a time."""
    keys, weight = torch.zeros(6, 8), torch.randn(8, 8)

    def step(x: Tensor, place: Tensor) -> Tensor:
        keys.index_copy_(0, place, x @ weight)
        return (x @ keys.T).softmax(-1) @ keys

    decode, x = compiling(step), torch.randn(1, 8)
    with torch.no_grad():
        for place in range(6):
            x = decode(x, torch.tensor([place])).tanh()
        print(float(keys.norm()))


def optimizer(compiling: Any) -> None:
    """An update that is compiled, of a bias without a gradient too; read by the next forward pass."""
    torch.manual_seed(0)
    first, second = nn.Linear(4, 8), nn.Linear(8, 2)
    rates = [(each, torch.zeros_like(each)) for each in (*first.parameters(), *second.parameters())]

    def update(gradients: list[Tensor]) -> None:
        for (value, mean), gradient in zip(rates, gradients, strict=True):
            mean.mul_(0.9).add_(gradient.square(), alpha=0.1)
            value.data.sub_(1e-2 * gradient / (mean.sqrt() + 1e-8))

    step = compiling(update)
    for _ in range(3):
        y = second(first(torch.randn(8, 4)))
        (y - y.mean(0)).square().sum().backward()  # the last bias shifts nothing
        step([value.grad for value, _ in rates])
        for value, _ in rates:
            value.grad = None


def narrow(compiling: Any) -> None:
    """Products in bfloat16, of which a compiler leaves out roundings."""
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.LayerNorm(16))
    forward = compiling(lambda x: model(model(x)))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        for _ in range(2):
            print(float(forward(torch.randn(8, 16)).float().abs().max()))


def shapes(compiling: Any) -> None:
    total = torch.zeros(5)

    def add(x: Tensor) -> Tensor:
        total.add_(x.mean(0))
        return total * 2

    made = compiling(add)
    for count in (3, 4, 7):
        made(torch.randn(count, 5)).abs().sum().item()


def cancelling(compiling: Any) -> None:
    """A sum of which nothing is left but rounding, read as a number."""
    made = compiling(lambda x: (x - x.mean()).sum() - 0.0)
    for _ in range(3):
        print(float(made(torch.randn(64))))


def ties(compiling: Any) -> None:
    """Places of a maximum among numbers that are all but equal."""
    made = compiling(lambda x: (x / x.sum(-1, keepdim=True)).argmax(-1))
    print(int(made(1 + 1e-7 * torch.randn(16, 32)).sum()))


def handed_out(compiling: Any) -> None:
    """One line that is in a graph and outside of one."""
    double = compiling(lambda x: (x * 2).sum(0))
    for _ in range(2):
        print(float(double(torch.randn(4, 4)).sum(0).sum(0)))


HEALTHY = (batch_norm, cache, optimizer, narrow, shapes, cancelling, ties, handed_out)


@pytest.mark.parametrize("backend", [hidden, rounding], ids=["same", "rounding"])
@pytest.mark.parametrize("program", HEALTHY, ids=lambda program: program.__name__)
def test_what_a_correct_compiler_makes_is_not_told(
    program: Program, backend: Any, tmp_path: Path
) -> None:
    graphs = [
        finding
        for finding in beside_eager(tmp_path, program, backend)
        if (finding.op or "").startswith("compiled::")
    ]
    assert not graphs


def doubling(name: str) -> Any:
    """A compiler that writes twice what one method of a graph writes in place."""

    def backend(module: Any, _: Any) -> Any:
        for node in list(module.graph.nodes):
            if node.op == "call_method" and node.target == name:
                with module.graph.inserting_after(node):
                    module.graph.call_method("mul_", (node.args[0], 2))
        module.recompile()

        def run(*given: Any) -> Any:
            with _disable_current_modes():
                return torch.fx.Interpreter(module).run(*given)

        return run

    return backend


def taken_over(compiling: Any) -> None:
    """What is written holds what golden has elsewhere."""

    def take(target: Tensor, learned: Tensor) -> Tensor:
        target.copy_(learned)
        learned.add_(0.5)
        return learned.sum()

    target, learned = torch.zeros(3, 4), torch.arange(12.0).view(3, 4)
    compiling(take)(target, learned)
    print(float(target.sum()), float(learned.sum()))


def returned(compiling: Any) -> None:
    """What is given back is the input that was written to."""

    def grow(scores: Tensor) -> Tensor:
        scores.mul_(3)
        scores.sub_(1)
        return scores

    print(float(compiling(grow)(torch.rand(6, 16)).sum()))


@pytest.mark.parametrize(
    ("program", "method"), [(taken_over, "copy_"), (taken_over, "add_"), (returned, "sub_")]
)
def test_what_is_written_in_place_is_told(program: Program, method: str, tmp_path: Path) -> None:
    first = beside_eager(tmp_path, program, doubling(method))[0]
    assert (first.op, first.phase) == ("compiled::graph_0_0", "forward")
    assert first.confidence == "suspected"
