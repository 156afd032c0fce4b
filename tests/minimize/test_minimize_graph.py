# SPDX-License-Identifier: Apache-2.0
"""What a compiler makes wrongly is made smaller while it still does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import opscope
from opscope.errors import FormatError
from opscope.minimize.api import minimize
from opscope.minimize.graph_part import (
    GraphPart,
    lengths,
    load_graph_part,
    size_of_part,
    with_given,
    with_length,
    with_number,
    with_outputs,
    without_node,
)
from opscope.repro.graph import Element, Input, Memory, Node, Window

pytestmark = pytest.mark.filterwarnings("ignore")
BACKEND = """
import torch
from torch._dynamo.backends.registry import register_backend


@register_backend
def mistaken(module, inputs):
    for node in module.graph.nodes:
        if node.target == torch.sigmoid:
            node.target = torch.tanh
    module.recompile()
    return module.forward
"""


def node(name: str, *read: str, args: Any = ()) -> Node:
    return Node(name, "call_method", "add", [*({"node": each} for each in read), *args], {})


def part() -> GraphPart:
    """x[4, 6], y[6]: a = x + y, b = a + a, c = b.add(6)."""
    return GraphPart(
        Window(
            backend="eager",
            memories=[Memory("float32", 26), Memory("float32", 6)],
            inputs=[Input("x", 0, [4, 6], [1, 4], 2), Input("y", 1, [6], [1], 0)],
            nodes=[node("a", "x", "y"), node("b", "a", "a"), node("c", "b", args=[6, True])],
            outputs=["b", "c"],
            witness=Element(0, [], "0", "0", "0"),
        ),
        (np.arange(26, dtype=np.float32), np.ones(6, np.float32)),
    )


def test_a_call_goes_only_when_nothing_reads_it() -> None:
    assert without_node(part(), "a") is None
    assert without_node(part(), "c") is None  # an output
    less = without_node(with_outputs(part(), ["b"]), "c")
    assert less is not None
    assert [each.name for each in less.window.nodes] == ["a", "b"]


def test_what_a_call_made_is_given_and_what_only_it_read_goes() -> None:
    given = with_given(part(), "a", np.full((4, 6), 2, np.float32), "float32")
    assert given is not None
    (row,) = given.window.inputs
    assert (row.name, row.shape, row.stride, row.memory) == ("a", [4, 6], [6, 1], 0)
    assert [each.tolist() for each in given.memories] == [[2.0] * 24]
    assert with_given(with_outputs(part(), ["c"]), "c", np.zeros(1), "float64") is None


def test_a_shorter_length_keeps_the_first_elements_and_the_order_of_memory() -> None:
    assert lengths(part()) == [(6, -1), (4, -2)]
    less = with_length(part(), 6, 2)
    x, y = less.window.inputs
    assert (x.shape, x.stride, x.offset, y.shape) == ([4, 2], [1, 4], 0, [2])
    assert less.memories[0].tolist() == [*range(2, 10)]
    assert less.window.memories == [Memory("float32", 8), Memory("float32", 2)]
    assert with_length(part(), 6, 2, -2).window == part().window
    argued = with_number(less, 6, 2)
    assert argued is not None
    assert argued.window.nodes[2].args == [{"node": "b"}, 2, True]
    assert with_number(less, 5, 2) is None
    assert size_of_part(less).shapes == {"x": (4, 2), "y": (2,)}


def test_inputs_that_share_a_memory_stay_in_it() -> None:
    window = part().window
    inputs = [Input("x", 0, [4, 6], [1, 4], 2), Input("y", 0, [6], [4], 0)]
    shared = GraphPart(Window(**{**_facts(window), "inputs": inputs}), part().memories)
    less = with_length(shared, 6, 3)
    assert [(row.shape, row.stride, row.offset) for row in less.window.inputs] == [
        ([4, 3], [1, 4], 2), ([3], [4], 0),
    ]  # fmt: skip
    assert less.memories[0] is shared.memories[0]


def _facts(window: Window) -> dict[str, Any]:
    return {name: getattr(window, name) for name in window.__struct_fields__}


def gated(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(x @ weight) * 0.5
    return gate.sum(1) + x.sum(1)


@pytest.mark.zoo
def test_a_folder_is_made_smaller_and_still_fails_alone(tmp_path: Path) -> None:
    place = tmp_path / "mistaken.py"
    place.write_text(BACKEND, encoding="utf-8")
    space: dict[str, Any] = {}
    exec(compile(BACKEND.replace("@register_backend", ""), str(place), "exec"), space)
    torch._dynamo.reset()
    torch.manual_seed(0)
    compiled = torch.compile(gated, backend=space["mistaken"])
    with opscope.record(tmp_path / "run", check=True):
        compiled(torch.rand(6, 5), torch.rand(5, 7))
    torch._dynamo.reset()
    (found,) = (
        each for each in opscope.scan(tmp_path / "run").findings if each.kind == "compiled-mismatch"
    )
    assert found.call is not None
    opscope.repro(tmp_path / "run", found.call, tmp_path / "case")
    agreeing = minimize(tmp_path / "case", tmp_path / "none")
    assert (agreeing.directory, agreeing.shown) == (None, 0)  # no such back end without --import
    less = minimize(tmp_path / "case", tmp_path / "less", imports=[str(place)])
    assert less.outcome is not None
    assert (less.ended, less.outcome.status) == ("done", "reproduced")
    smaller = load_graph_part(tmp_path / "less")
    assert [each.target for each in smaller.window.nodes] == ["torch.sigmoid"]
    assert [row.shape for row in smaller.window.inputs] == [[1, 1]]
    done = subprocess.run(
        [sys.executable, str(tmp_path / "less" / "repro.py"), "--import", str(place)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    graph = tmp_path / "less" / "graph.json"
    graph.write_text(graph.read_text().replace('"offset": 0', '"offset": 9'), encoding="utf-8")
    with pytest.raises(FormatError, match="outside of its memory"):
        load_graph_part(tmp_path / "less")
