# SPDX-License-Identifier: Apache-2.0
"""What is born inside a compiled graph is told to the operator and its line, and healthy graphs are
left alone.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from _pytest.mark import ParameterSet
from tests.oldest import IS_OLDEST, not_in_oldest
from tests.record.hidden_backend import hidden
from tests.record.recorded import record
from torch import library, nn
from torch.utils.checkpoint import checkpoint

import opscope

pytestmark = pytest.mark.filterwarnings("ignore")
if not IS_OLDEST:
    from torch._higher_order_ops.scan import scan
    from torch.nn.attention.flex_attention import flex_attention


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def later(program: Callable[[], object]) -> ParameterSet:
    return pytest.param(program, marks=not_in_oldest("neither scan nor flex_attention"))


def named_later(program: Callable[[], object]) -> ParameterSet:
    return pytest.param(program, marks=not_in_oldest("a graph's modules have names of their own"))


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend=hidden, **options)


@library.custom_op("opscope_tests::half_log", mutates_args=(), schema="(Tensor x) -> Tensor")
def half_log(x: torch.Tensor) -> torch.Tensor:
    return torch.log(x) / 2


@half_log.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(self.linear(x) - 1)  # <- origin


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(x))


def in_a_module() -> str:
    compiled(Model())(torch.randn(8, 4)).sum().backward()
    return "log.default forward block"


def in_the_backward_graph() -> str:
    weight = torch.zeros(4, requires_grad=True)

    def distance(x: torch.Tensor) -> torch.Tensor:
        d = x * weight
        return torch.sqrt((d * d).sum()) * 2  # <- origin

    compiled(distance)(torch.randn(4)).backward()
    return "div.Tensor backward "


def in_a_compiled_optimizer() -> str:
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.Adam([weight], lr=0.1, eps=0.0)
    weight.grad = torch.tensor([1.0, 0.0, 1.0, 1.0])
    compiled(optimizer.step)()  # <- origin
    return "addcdiv_.default optimizer "


def inside_a_checkpoint() -> str:
    linear = nn.Linear(4, 4)

    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.log(linear(x))  # <- origin

    def whole(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(inner, x, use_reentrant=False) * 2

    compiled(whole)(torch.randn(8, 4)).sum().backward()
    return "log.default forward "


def after_a_graph_break() -> str:
    linear = nn.Linear(4, 4)

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = linear(x)
        torch._dynamo.graph_break()
        return torch.sqrt(y - 3)  # <- origin

    compiled(broken)(torch.randn(8, 4)).sum().backward()
    return "sqrt.default forward "


def in_a_recompiled_shape() -> str:
    linear = nn.Linear(4, 4)
    nn.init.constant_(linear.bias, 9.0)
    inverse = compiled(lambda x: torch.rsqrt(F.relu(linear(x))), dynamic=False)  # <- origin
    inverse(torch.rand(8, 4))
    inverse(torch.rand(3, 4) * -100)
    return "rsqrt.default forward "


def in_a_dynamic_shape() -> str:
    linear = nn.Linear(4, 4)
    nn.init.constant_(linear.bias, 9.0)
    logarithm = compiled(lambda x: torch.log(linear(x)), dynamic=True)  # <- origin
    logarithm(torch.rand(8, 4))
    logarithm(torch.rand(5, 4) * -100).sum().backward()
    return "log.default forward "


def with_autocast() -> str:
    linear = nn.Linear(4, 4)

    def square(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            h = linear(x)
        return h * h  # <- origin

    compiled(square)(torch.full((2, 4), 3e3))
    return "mul.Tensor forward "


def in_a_custom_operator() -> str:
    linear = nn.Linear(4, 4)
    with torch.no_grad():
        compiled(lambda x: half_log(linear(x)) + 1)(torch.randn(8, 4))  # <- origin
    return "half_log.default forward "


def in_a_branch_of_cond() -> str:
    def branches(x: torch.Tensor) -> torch.Tensor:
        def logarithm(x: torch.Tensor) -> torch.Tensor:
            return torch.log(x)  # <- origin

        return torch.cond(x.sum() < 1e9, logarithm, lambda x: x * 2, (x,))

    with torch.no_grad():
        compiled(branches)(torch.randn(8, 4))
    return "log.default forward "


def in_a_step_of_scan() -> str:
    def step(state: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = torch.sqrt(state * 0.5 + x)  # <- origin
        return state, state.clone()

    x = torch.rand(5, 4)
    x[3, 2] = -9.0
    compiled(lambda state, x: scan(step, state, x)[1].sum())(torch.ones(4), x)
    return "sqrt.default forward "


def in_flex_attention() -> str:
    def score(s: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return torch.log(s)  # <- origin

    x = torch.randn(1, 2, 16, 16)
    with torch.no_grad():
        compiled(lambda q, k, v: flex_attention(q, k, v, score_mod=score))(x, x.clone(), x.clone())
    return "log.default forward "


def in_a_compiled_loss() -> str:
    linear = nn.Linear(4, 4)

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        p = torch.softmax(linear(x) * 1e4, -1)
        return -(target * torch.log(p)).sum()  # <- origin

    compiled(loss)(torch.randn(8, 4), torch.zeros(8, 4)).backward()
    return "log.default forward "


def in_inference() -> str:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=0.0)).eval()
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    with torch.inference_mode():
        compiled(model)(torch.zeros(2, 4))  # <- origin
    return "layer_norm.default forward 1"


@pytest.mark.parametrize(
    "program",
    [
        in_a_module, in_the_backward_graph, in_a_compiled_optimizer, inside_a_checkpoint,
        named_later(after_a_graph_break), named_later(in_a_recompiled_shape), in_a_dynamic_shape,
        with_autocast, in_a_custom_operator, in_a_branch_of_cond, later(in_a_step_of_scan),
        later(in_flex_attention), in_a_compiled_loss, named_later(in_inference),
    ],
    ids=lambda program: program.__name__,
)  # fmt: skip
def test_the_operator_inside_is_named(tmp_path: Path, program: Callable[[], str]) -> None:
    wanted: list[str] = []
    found = record(tmp_path, lambda: wanted.append(program()))
    (finding,) = opscope.scan(found.run).findings
    name = finding.op.rpartition("::")[2]
    assert f"{name} {finding.phase} {finding.module}" == wanted[0]
    source = finding.forward.source if finding.phase == "backward" else finding.source
    file, _, line = source.rpartition(":")
    assert linecache.getline(file, int(line)).rstrip().endswith("# <- origin")
    assert finding.confidence == "proven"
    assert finding.evidence[0]["again"]["agrees"]


def fused_bfloat16() -> None:
    model = compiled(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)))
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(torch.randn(4, 8) * 100)
        out.float().sum().backward()


def dropout() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        compiled(model)(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def guarded_inside() -> None:
    compiled(lambda x: torch.where(x > 0, torch.log(x), 0.0).sum())(torch.randn(16))


def given_and_guarded_inside() -> None:
    def imputed(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.isnan(), x.nanmean(0), x)

    x = torch.randn(10, 4)
    x[2, 1] = float("nan")
    compiled(imputed)(x).sum()


def guarded_outside() -> None:
    x = torch.randn(16)
    torch.where(x > 0, compiled(torch.log)(x), torch.zeros(())).sum()


def masked_softmax() -> None:
    def masked(scores: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(torch.ones(8, 8).triu(1).bool(), float("-inf"))

    mask = compiled(masked)
    for _ in range(5):
        mask(torch.randn(2, 8, 8, requires_grad=True)).softmax(-1).sum().backward()


def scaler() -> None:
    model = nn.Linear(8, 8)
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, backoff_factor=2.0**-8)
    for _ in range(6):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = run(torch.randn(4, 8)).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def flex_attention_with_masked_rows() -> None:
    def attend(q: torch.Tensor) -> torch.Tensor:
        def score(s: torch.Tensor, b: Any, h: Any, row: torch.Tensor, _: Any) -> torch.Tensor:
            return torch.where(row > 3, s, float("-inf"))

        return torch.nan_to_num(flex_attention(q, q, q, score_mod=score))

    with torch.no_grad():
        compiled(attend)(torch.randn(1, 2, 16, 16))


def cond() -> None:
    with torch.no_grad():
        compiled(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))(torch.randn(4))


def dynamic_shapes() -> None:
    linear = nn.Linear(4, 4)
    model = compiled(lambda x: F.softplus(linear(x)), dynamic=True)
    for size in (3, 5, 9):
        model(torch.randn(size, 4)).sum().backward()


@pytest.mark.parametrize(
    "program",
    [
        fused_bfloat16, dropout, guarded_inside, given_and_guarded_inside, guarded_outside,
        masked_softmax, scaler, later(flex_attention_with_masked_rows), cond, dynamic_shapes,
    ],
    ids=lambda program: program.__name__,
)  # fmt: skip
def test_healthy_graphs_are_left_alone(tmp_path: Path, program: Callable[[], None]) -> None:
    assert opscope.scan(record(tmp_path, program).run).findings == ()


def test_a_mask_stays_one_when_its_graph_is_not_executed_again(tmp_path: Path) -> None:
    """A graph is executed again three times; what its results were then they are later."""

    def program() -> None:
        mask = compiled(lambda scores, keep: scores.masked_fill(~keep, float("-inf")))
        for step in range(6):
            keep = torch.ones(8, 8).tril(-1 if step == 5 else 0).bool()
            mask(torch.randn(8, 8), keep).softmax(-1).sum()

    (finding,) = opscope.scan(record(tmp_path, program).run).findings
    assert finding.op == "aten::_softmax.default"


def test_nothing_of_the_program_is_written_to(tmp_path: Path) -> None:
    """The second execution works on copies, and draws no random number of the program's."""

    def program() -> list[float]:
        torch._dynamo.reset()
        torch.manual_seed(0)

        def step(state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            state.add_(1)
            return torch.log(F.dropout(x, 0.5)) + state

        state = torch.zeros(4)
        compiled(step)(state, -torch.ones(4))
        return [*state.tolist(), *torch.rand(4).tolist()]

    bare, recorded = program(), []
    found = record(tmp_path, lambda: recorded.extend(program()))
    assert recorded == bare
    assert [call for call in found.calls if call.again is not None]


def test_what_a_cached_graph_writes_to_is_kept_without_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where AOTAutograd's cache has the graph, nobody says what it writes to."""
    monkeypatch.setattr("opscope.record.torch.dynamo.written_places", lambda *_: None)

    def program() -> list[float]:
        torch._dynamo.reset()
        state = torch.zeros(4)

        def step(x: torch.Tensor) -> torch.Tensor:
            state.add_(1)
            return torch.log(x) + state

        run = compiled(step)
        run(-torch.ones(4))
        run(-torch.ones(4))
        return state.tolist()

    bare, recorded = program(), []
    found = record(tmp_path, lambda: recorded.extend(program()))
    assert recorded == bare
    (finding,) = opscope.scan(found.run).findings
    assert finding.op == "aten::log.default"
    assert len({call.again for call in found.calls} - {None}) == 2


def test_a_collective_is_not_made_again(tmp_path: Path) -> None:
    def program() -> None:
        def uses(x: torch.Tensor) -> torch.Tensor:
            return torch.ops._c10d_functional.wait_tensor(torch.log(x))

        with torch.no_grad():
            compiled(uses)(-torch.ones(4))

    found = record(tmp_path, program)
    assert not [call for call in found.calls if call.again is not None]
    (why,) = found.run.processes[0].torch["not executed again"].values()
    assert "side effects" in why
    (finding,) = opscope.scan(found.run).findings
    assert finding.op.startswith("compiled::")
    assert finding.confidence == "likely"
