# SPDX-License-Identifier: Apache-2.0
"""A program whose compiled code nobody sees beside one that is written otherwise: told inside of
the graph, by its second execution.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import compared, fitted, marked_line, recorded
from tests.record.hidden_backend import OPAQUE, hiding
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import register_backend
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

import opscope

WIDE, ROWS, STEPS, RATE = 8, 6, 4, 0.05


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def batches() -> list[tuple[Tensor, Tensor]]:
    return fitted(17, steps=STEPS, rows=ROWS, wide=WIDE, out=WIDE)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.average = nn.LayerNorm(WIDE), nn.BatchNorm1d(WIDE)
        self.up, self.down = nn.Linear(WIDE, 3 * WIDE), nn.Linear(3 * WIDE, WIDE)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.gelu(self.up(self.norm(x)))
        made: Tensor = self.average(x + self.down(wide))
        return made


def block() -> Block:
    torch.manual_seed(18)
    return Block()


def modules(_: str) -> None:
    trained(block())


def trained(net: nn.Module) -> None:
    sgd = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9)
    for x, y in batches():
        loss = F.mse_loss(net(x), y)
        sgd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()


def written_out(fault: str) -> None:
    net = block()
    gain = 1.702 if fault == "gelu" else 0.0

    def made(x: Tensor) -> Tensor:
        off = x - x.mean(-1, keepdim=True)
        normed = off * torch.rsqrt(off.square().mean(-1, keepdim=True) + net.norm.eps)
        normed = normed * net.norm.weight + net.norm.bias
        wide = normed @ net.up.weight.mT + net.up.bias
        wide = wide * torch.sigmoid(gain * wide) if gain else F.gelu(wide)  # gelu
        return net.average(x + wide @ net.down.weight.mT + net.down.bias)  # type: ignore[no-any-return]

    opaque = torch.compile(made, backend=OPAQUE)
    sgd = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9)
    for x, y in batches():
        loss = (opaque(x) - y).square().mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()


def test_a_compiled_port_is_nothing(tmp_path: Path) -> None:
    assert not compared((written_out, modules), tmp_path / "port").document.findings
    assert not compared((modules, written_out), tmp_path / "original").document.findings


def test_a_fault_inside_is_told_at_its_line(tmp_path: Path) -> None:
    finding = compared((written_out, modules), tmp_path, "gelu").document.findings[0]
    assert finding.source == f"{__file__}:{marked_line(__file__, '# gelu')}"
    assert "it is an operator of compiled::graph_0_0, which was executed again" in finding.reasons


def shifted(module: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
    """Code that gives other results than the graph's operators."""
    run = hiding(module, inputs)

    def wrong(given: list[Tensor]) -> list[Tensor]:
        first, *rest = run(given)
        with _disable_current_modes():
            return [first + 0.01, *rest]

    wrong._boxed_call = True  # type: ignore[attr-defined]
    return wrong


def test_code_that_makes_something_else_is_still_the_graph(tmp_path: Path) -> None:
    name = "opaque_and_wrong"

    def layer() -> nn.Module:
        torch.manual_seed(19)
        return nn.Sequential(nn.Linear(WIDE, WIDE), nn.Tanh())

    register_backend(aot_autograd(fw_compiler=shifted, bw_compiler=hiding), name=name, tags=())

    def compiled(_: str) -> None:
        trained(torch.compile(layer(), backend=name))  # type: ignore[arg-type]

    first = compared((compiled, lambda _: trained(layer())), tmp_path).document.findings[0]
    assert (first.op, first.phase, first.step) == ("compiled::graph_0_0", "forward", 0)


@pytest.mark.parametrize("target", [False, True], ids=["golden", "target"])
def test_a_run_that_was_not_looked_into_beside_one_that_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, target: bool
) -> None:
    """As one of an older opscope: of both the graphs are compared."""
    looked = recorded(written_out, tmp_path / "looked")
    monkeypatch.setattr("opscope.record.torch.again.MOST_OPENED", 0)
    torch.compiler.reset()
    bare = recorded(written_out, tmp_path / "bare")
    pair = (looked, bare) if target else (bare, looked)
    assert not opscope.compare(*pair).document.findings
