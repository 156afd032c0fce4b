# SPDX-License-Identifier: Apache-2.0
"""Graphs and nodes of torch.compile that another backend compiles: what the program computes stays
the same wherever a graph is parted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.backends.registry import lookup_backend

from opscope.errors import UnavailableError
from opscope.record.backend_rules import parse_backend_rules
from opscope.record.torch.backends import Backends


class Layers(torch.nn.Module):
    """Gradient mode, autocast, statistics, views and writes in place, in one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.norm = torch.nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.norm(torch.relu(self.linear(x)))
        with torch.no_grad():
            mean = h.mean() * scale
        with torch.autocast("cpu", torch.bfloat16):
            k = self.linear(h)
        h = h.clone()
        h[0] = 3.0
        h.mul_(2)
        flat = h.view(-1)
        flat.add_(len(x))
        return torch.softmax(k.float() + h - mean, -1).log().sum(), flat


def trained(backend: Callable[..., Any] | str, *, dynamic: bool = False) -> list[torch.Tensor]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    layers = Layers()
    step = torch.compile(layers, backend=backend, dynamic=dynamic)
    made: list[torch.Tensor] = []
    for rows, scale in ((6, 0.5), (5, 0.25)):
        x = torch.randn(rows, 8, requires_grad=True)
        loss, flat = step(x, scale)
        loss.backward()
        assert x.grad is not None
        made += [loss.detach(), flat.detach(), x.grad]
    return [*made, *(p.grad for p in layers.parameters() if p.grad is not None), *layers.buffers()]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "places",
    [
        "2-4",
        *(
            pytest.param(each, marks=pytest.mark.zoo)
            for each in ("0", "0,2,4,6,8,10,12,14,16", "1,3,5,7,9,11,13,15,17")
        ),
    ],
)
def test_a_parted_graph_computes_the_same(places: str, *, dynamic: bool) -> None:
    backends = Backends(parse_backend_rules(f"*/{places}=eager"))
    chosen = backends.chosen("graph_0_0", lookup_backend("aot_eager"))
    assert chosen is not None
    for one, other in zip(
        trained("eager", dynamic=dynamic), trained(chosen, dynamic=dynamic), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_items_of_what_gives_several_values() -> None:
    """Taken one by one, all at once, and of a tuple in a tuple, each of which may lie elsewhere."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, *_, last = torch.split(x, 2)
        y = torch.cos(first)
        both = torch.cat(torch.unbind(x * 2))
        value, place = (x + last.sum()).max(0)
        return torch.sin(last) + y, both, value, place, torch.chunk(x, 2)[1] * 2

    def backend(places: str) -> Callable[..., Any] | None:
        rules = parse_backend_rules(f"g/{places}=eager")
        return Backends(rules).chosen("g", lookup_backend("aot_eager"))

    x = torch.randn(8, 3)
    for place in range(14):
        torch._dynamo.reset()
        made = torch.compile(program, backend=backend(f"{place},{place + 3}"))(x)
        torch.testing.assert_close(made, program(x))


def test_only_the_nodes_that_were_not_chosen_are_the_programs_backends() -> None:
    seen: list[str] = []

    def own(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        seen.extend(
            node.target.__name__ for node in module.graph.nodes if node.op == "call_function"
        )
        return module.forward

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(torch.sin(torch.cos(x)))

    torch._dynamo.reset()
    chosen = Backends(parse_backend_rules("g/1=eager")).chosen("g", own)
    assert chosen is not None
    x = torch.ones(3)
    assert torch.equal(torch.compile(program, backend=chosen)(x), program(x))
    assert seen == ["cos", "exp"]


def test_what_is_not_chosen_keeps_its_own() -> None:
    backends = Backends(parse_backend_rules("graph_1_*=eager;graph_2_0=no_such_backend"))
    assert backends.chosen("graph_0_0", lookup_backend("eager")) is None
    with pytest.raises(UnavailableError, match="no_such_backend"):
        backends.chosen("graph_2_0", lookup_backend("eager"))
