# SPDX-License-Identifier: Apache-2.0
"""Graphs of generated code are executed again, operator by operator, in the first step in which
they run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import opscope
from tests.compare.told_lines import marked_line
from tests.record.hidden_backend import OPAQUE, hidden
from tests.record.recorded import Recorded, record

STEPS = 3


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(8, 12), nn.BatchNorm1d(12), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.tanh(self.up(x))  # tanh
        made: Tensor = self.down(self.norm(wide))
        return made


def training(model: Callable[[nn.Module], Any], parts: int = 1) -> list[float]:
    torch.manual_seed(0)
    net = Normed()
    called, sgd, losses = model(net), torch.optim.SGD(net.parameters(), lr=0.1), []
    for _ in range(STEPS):
        sgd.zero_grad()
        for _ in range(parts):
            loss = called(torch.randn(6, 8)).square().mean()
            loss.backward()
            losses.append(loss.item())
        sgd.step()
    return [*losses, float(net.norm.running_var.sum())]  # type: ignore[operator]


def opaque(net: Any) -> Any:
    return torch.compile(net, backend=OPAQUE)


def second(found: Recorded, **facts: Any) -> list[Any]:
    return [call for call in found.all("aten::", **facts) if call.again is not None]


@pytest.mark.parametrize("plain", [False, True], ids=["compiled", "plain"])
def test_operators_of_the_first_step_are_there_with_lines_and_gradients(
    tmp_path: Path, *, plain: bool
) -> None:
    bare, watched = training(opaque), list[float]()
    torch.compiler.reset()
    found = record(tmp_path, lambda: watched.extend(training(opaque)), plain=plain)
    assert watched == bare
    assert {call.step for call in second(found)} == {0}
    [tanh] = found.all("aten::tanh.default")
    assert tanh.source == f"{__file__}:{marked_line(__file__, '# tanh')}"
    graphs = [call for call in found.all("compiled::", step=0) if call.again is None]
    assert [call.phase for call in graphs] == ["forward", "backward"]
    assert tanh.again == graphs[0].index
    [back] = found.all("aten::tanh_backward")
    assert (back.again, back.forward_index) == (graphs[1].index, tanh.index)
    wholes = [call for call in found.all("compiled::") if call.again is not None]
    for graph, whole in zip(graphs, wholes, strict=True):
        made, same = found.outputs(graph), found.outputs(whole)
        assert made
        for slot, tensor in made.items():
            assert same[slot].l2norm == pytest.approx(tensor.l2norm, rel=1e-5)


def test_every_part_of_the_first_batch_is(tmp_path: Path) -> None:
    found = record(tmp_path, lambda: training(opaque, parts=3))
    assert Counter(call.step for call in found.all("aten::tanh_backward")) == {0: 3}


def test_it_is_where_no_optimizer_ends_a_step(tmp_path: Path) -> None:
    """For the recorder each part is a step then."""

    def own() -> None:
        net = Normed()
        called = opaque(net)
        for _ in range(STEPS):
            for _ in range(2):
                called(torch.randn(6, 8)).square().mean().backward()
            with torch.no_grad():
                for weight in net.parameters():
                    assert weight.grad is not None
                    weight.sub_(0.1 * weight.grad)
                    weight.grad = None

    found = record(tmp_path, own)
    assert [call.step for call in found.all("aten::tanh_backward")] == [0, 1]


def test_back_ends_that_nobody_knows_to_generate_code_are_left_alone(tmp_path: Path) -> None:
    found = record(tmp_path, lambda: training(lambda net: torch.compile(net, backend=hidden)))
    assert not second(found)


def test_what_is_not_torchs_own_is_called_once(tmp_path: Path) -> None:
    """Nobody knows what else it does."""
    called: list[int] = []

    @torch.library.custom_op("opscope_tests::counted", mutates_args=())
    def counted(x: Tensor) -> Tensor:
        called.append(1)
        return x * 2

    @counted.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    function = torch.compile(lambda x: counted(x).sum(), backend=OPAQUE)
    found = record(tmp_path, lambda: function(torch.ones(4)))
    assert len(called) == 1
    assert not second(found)


def test_random_numbers_of_the_program_are_its_own(tmp_path: Path) -> None:
    def drawing() -> list[float]:
        torch.manual_seed(1)
        made = torch.compile(lambda x: nn.functional.dropout(x, 0.5).sum(), backend=OPAQUE)
        return [float(made(torch.ones(64)) + torch.rand(())) for _ in range(3)]

    bare, watched = drawing(), list[float]()
    torch.compiler.reset()
    record(tmp_path, lambda: watched.extend(drawing()))
    assert watched == bare


def test_what_makes_much_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opscope.record.torch.again.MOST_MADE", 64)
    assert not second(record(tmp_path, lambda: training(opaque)))


def test_what_waits_for_its_backward_pass_is_not_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second forward pass is not looked into while the first is kept, but once it is gone."""
    monkeypatch.setattr("opscope.record.torch.again.MOST_MADE", 700)
    made = torch.compile(lambda x, w: torch.tanh(x @ w), backend=OPAQUE)

    def passes() -> None:
        torch.manual_seed(0)
        w = torch.randn(8, 8, requires_grad=True)
        first, other = (made(torch.randn(8, 8), w) for _ in range(2))
        first.sum().backward()
        del first
        made(torch.randn(8, 8), w).sum().backward()
        other.sum().backward()

    found = record(tmp_path, passes)
    graphs = [call for call in found.all("compiled::", phase="forward") if call.again is None]
    looked = {call.again for call in found.all("aten::tanh.default")}
    assert [call.index in looked for call in graphs] == [True, False, True]


def test_operators_that_call_graphs_as_often_as_they_like_are_not_looked_into(
    tmp_path: Path,
) -> None:
    @torch.compile(backend=OPAQUE)
    def chosen(x: Tensor) -> Tensor:
        made: Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return made

    assert not second(record(tmp_path, lambda: chosen(torch.ones(4))))


def test_shapes_that_change_do_not_make_the_program_compile_again(tmp_path: Path) -> None:
    """Sizes are asked for without a guard on them."""

    def growing() -> int:
        torch.compiler.reset()
        counters.clear()
        made = torch.compile(lambda x: torch.tanh(x).sum(), backend=OPAQUE, dynamic=True)
        for rows in (3, 5, 9):
            made(torch.ones(rows, 4))
        return int(counters["stats"]["unique_graphs"])

    bare, watched = growing(), list[int]()
    record(tmp_path, lambda: watched.append(growing()))
    assert watched == [bare] == [1]


def test_scan_says_nothing_of_it(tmp_path: Path) -> None:
    assert not opscope.scan(record(tmp_path, lambda: training(opaque)).run).findings
