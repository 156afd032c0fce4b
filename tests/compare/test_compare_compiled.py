# SPDX-License-Identifier: Apache-2.0
"""A program that was compiled beside itself without: the graph is named whose results are none that
the operators made; nothing where it makes the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.record.hidden_backend import hidden, hiding
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch.utils import _pytree as pytree

import opscope
from opscope.compare.tell.comparison import Comparison


def spoiling(spoil: Any) -> Any:
    """A compiler of graphs of which the first result that is no scalar is spoilt."""

    def compiler(module: Any, inputs: Any) -> Any:
        compiled = hiding(module, inputs)

        def run(given: list[Any]) -> Any:
            made = list(compiled(given))
            place = next(at for at, each in enumerate(made) if isinstance(each, Tensor))
            made[place] = spoil(made[place])
            return made

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    return compiler


def pooled(features: Tensor, weight: Tensor) -> Tensor:
    return torch.tanh(features @ weight).amax(1)


def sharply_pooled(features: Tensor, weight: Tensor) -> Tensor:
    return torch.tanh(2.0 * (features @ weight)).amax(1)


def filled(features: Tensor, cache: Tensor) -> Tensor:
    cache.copy_(torch.tanh(features))
    return features * 2


def logarithmic(features: Tensor, weight: Tensor) -> Tensor:
    return torch.tanh(torch.log(features @ weight)).amax(1)


def recorded(to: Path, compiler: Any, function: Any = pooled, **options: Any) -> Path:
    """Three steps of a training without modules, compiled unless there is no back end."""
    torch.manual_seed(0)
    weight = torch.randn(8, 8, requires_grad=True)
    batches = torch.randn(3, 4, 10, 8)
    made = function if compiler is None else torch.compile(function, backend=compiler)
    torch.compiler.reset()
    with opscope.record(to, values="none", **options):
        for batch in batches:
            made(batch, weight).square().mean().backward()
            with torch.no_grad():
                assert weight.grad is not None
                weight -= 0.1 * weight.grad
            weight.grad = None
    return to


def beside_eager(tmp_path: Path, backend: Any) -> Comparison:
    return opscope.compare(recorded(tmp_path / "one", backend), recorded(tmp_path / "two", None))


def test_what_makes_the_same_is_not_named(tmp_path: Path) -> None:
    assert not beside_eager(tmp_path, hidden).document.findings


@pytest.mark.parametrize(
    ("phase", "spoil"),
    [
        ("forward", lambda made: made * 1.01),
        ("backward", lambda made: made * 1.01),
        ("backward", lambda made: torch.full_like(made, torch.nan)),
        ("backward", torch.zeros_like),
    ],
    ids=["forward", "backward", "nan", "zeros"],
)
def test_the_graph_that_makes_something_else_is_named(
    phase: str, spoil: Any, tmp_path: Path
) -> None:
    compilers = {"fw_compiler": hiding, "bw_compiler": hiding}
    compilers["bw_compiler" if phase == "backward" else "fw_compiler"] = spoiling(spoil)
    first = beside_eager(tmp_path, aot_autograd(**compilers)).document.findings[0]
    assert (first.op, first.phase, first.step) == ("compiled::graph_0_0", phase, 0)
    assert first.confidence == "suspected"


def replacing(other: Any) -> Any:
    """A back end whose hidden code takes another function for tanh."""

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        for node in module.graph.nodes:
            if node.target is torch.tanh:
                node.target = other
        module.recompile()
        return hidden(module, inputs)

    return backend


def line(words: str) -> str:
    """FILE:LINE of the line of this file that holds these words first."""
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{1 + next(i for i, text in enumerate(lines) if words in text)}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("check", [True, False])
def test_what_a_check_saw_deviate_is_named_inside_the_graph(tmp_path: Path, *, check: bool) -> None:
    golden = recorded(tmp_path / "golden", None)
    run = recorded(tmp_path / "run", replacing(torch.sigmoid), check=check)
    first = opscope.compare(run, golden).document.findings[0]
    assert (first.op, first.phase, first.step) == ("compiled::graph_0_0", "forward", 0)
    if check:
        assert first.source == line("return torch.tanh(features")
        assert "so it is when only tanh at" in first.reasons[1]
        assert "command" not in first.evidence[0]
    else:
        assert first.evidence[0]["command"] == "opscope run --check -- CMD"


@pytest.mark.filterwarnings("ignore")
def test_a_graph_that_is_what_its_operators_make_asks_for_these(tmp_path: Path) -> None:
    golden = recorded(tmp_path / "golden", None)
    run = recorded(tmp_path / "run", hidden, check=True, function=sharply_pooled)
    first = opscope.compare(run, golden).document.findings[0]
    assert first.op == "compiled::graph_0_0"
    assert first.evidence[0]["command"] == "opscope run --backend graph_0_0=eager -- CMD"
    run = recorded(
        tmp_path / "interpreted", hidden, backend="graph_0_0=eager", function=sharply_pooled
    )
    first = opscope.compare(run, golden).document.findings[0]
    assert (first.op, first.source) == ("aten::mul.Tensor", line("2.0 * (features"))


@pytest.mark.filterwarnings("ignore")
def test_what_a_check_accuses_and_comparison_does_not_judge_is_said(tmp_path: Path) -> None:
    def program(to: Path, backend: Any, **options: Any) -> Path:
        torch.manual_seed(0)
        torch.compiler.reset()
        made = filled if backend is None else torch.compile(filled, backend=backend)
        with opscope.record(to, values="none", **options):
            made(torch.ones(4, 8) / 3, torch.zeros(4, 8))
        return to

    golden = program(tmp_path / "golden", None)
    run = program(tmp_path / "run", replacing(torch.sigmoid), check=True)
    document = opscope.compare(run, golden).document
    assert "compiled::graph_0_0" not in {finding.op for finding in document.findings}
    said = [text for text in document.summary["warnings"] if "--check of target" in text]
    assert said == [
        f"--check of target accuses compiled::graph_0_0, which does not show here: opscope scan {run}"
    ]


def test_the_operators_of_a_graph_that_runs_them_are_compared(tmp_path: Path) -> None:
    assert not beside_eager(tmp_path, "eager").document.findings


@pytest.mark.filterwarnings("ignore")
def test_what_is_not_finite_is_named_in_the_second_execution(tmp_path: Path) -> None:
    golden = recorded(tmp_path / "golden", None)
    run = recorded(tmp_path / "run", hidden, function=logarithmic)
    first = opscope.compare(run, golden).document.findings[0]
    assert (first.op, first.source) == ("aten::log.default", line("torch.log(features"))
    assert "it is an operator of compiled::graph_0_0, which was executed again" in first.reasons


def test_a_graph_that_draws_is_not_held_against_other_draws(tmp_path: Path) -> None:
    def noisy(to: Path, backend: Any) -> Path:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
        made = module if backend is None else torch.compile(module, backend=backend)
        torch.compiler.reset()
        with opscope.record(to, values="none"):
            made(torch.ones(4, 8)).sum().backward()
        return to

    compiled = aot_autograd(fw_compiler=spoiling(lambda made: made * 2), bw_compiler=hiding)
    found = opscope.compare(noisy(tmp_path / "one", compiled), noisy(tmp_path / "two", None))
    named = {finding.op for finding in found.document.findings}
    assert not {op for op in named if op is not None and op.startswith("compiled::")}


@pytest.mark.parametrize("wrong", [False, True])
def test_a_model_loaded_from_a_package(tmp_path: Path, *, wrong: bool) -> None:
    """It is one call, beside the model it was exported from."""
    torch.manual_seed(0)
    layer = nn.Linear(8, 4)

    class Loader:
        def get_call_spec(self) -> list[str]:
            given = pytree.tree_flatten(((0,), {}))[1]
            return [pytree.treespec_dumps(given), pytree.treespec_dumps(pytree.tree_flatten(0)[1])]

        def boxed_run(self, given: list[Tensor]) -> list[Tensor]:
            made = torch.softmax(layer(given[0]), 0 if wrong else -1)
            return [made]

    def eager(x: Tensor) -> Tensor:
        return torch.softmax(layer(x), -1)

    packages = pytest.importorskip("torch.export.pt2_archive._package")  # torch 2.4 has none
    loaded: Any = packages.AOTICompiledModel(Loader())
    for name, model in (("loaded", loaded), ("eager", eager)):
        torch.manual_seed(1)
        with opscope.record(tmp_path / name, values="none"), torch.no_grad():
            model(torch.randn(6, 8)).log().sum().item()
    found = opscope.compare(tmp_path / "loaded", tmp_path / "eager")
    named = [(each.op, each.confidence) for each in found.document.findings]
    assert named == ([("compiled::package_0", "suspected")] if wrong else [])
