# SPDX-License-Identifier: Apache-2.0
"""What goes wrong late in a short program is found: each signature's latest calls are copied, and
checked at the end.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import opscope
from opscope.record.torch import held
from opscope.record.torch.budget import FIRST, LATER, Budget, Signature
from opscope.record.torch.held import Held
from opscope.substitute.layout import Given
from tests.wrong_kernels.kernels import Override

STEPS = 30


def program(late: Override | None = None) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    stepper, losses = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), []
    data = torch.randn(5, 6)
    for step in range(STEPS):
        if step == STEPS - STEPS // 5 and late is not None:
            late.put()
        loss = model(data).square().mean()
        stepper.zero_grad()
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    return losses


def doubled(genuine: object, *args: torch.Tensor) -> torch.Tensor:
    return 2 * genuine(*args)  # type: ignore[operator,no-any-return]


@pytest.mark.usefixtures("one_process")
def test_a_kernel_that_goes_wrong_in_the_last_fifth_is_named_and_no_bit_changes(
    tmp_path: Path,
) -> None:
    late = Override("aten::tanh_backward.default", "CPU", doubled)
    with opscope.record(tmp_path / "run", check=True):
        watched = program(late)
    late.take_away()
    assert watched == program(late)
    late.take_away()
    findings = opscope.scan(opscope.open_run(tmp_path / "run")).findings
    assert {finding.op for finding in findings} == {"aten::tanh_backward.default"}
    assert all(
        finding.step is not None and finding.step >= STEPS - STEPS // 5 for finding in findings
    )


@pytest.mark.usefixtures("one_process")
def test_a_kernel_that_ships_wrong_is_named_where_the_budget_pays_for_no_sample(
    tmp_path: Path,
) -> None:
    """The first window holds zeros alone, and torch's own copy is as wrong in any process."""
    window = torch.zeros(4, 8)
    with opscope.record(tmp_path / "run", check=True, budget="0.001%"):
        for step in range(FIRST + 1):
            window[:, 1:] = window[:, :-1]
            window[:, 0] = float(step) + torch.arange(4)
    found = opscope.scan(opscope.open_run(tmp_path / "run")).findings
    assert [finding.op for finding in found] == ["aten::copy_.default"]


@pytest.mark.usefixtures("one_process")
def test_steps_that_the_run_dropped_accuse_nobody(tmp_path: Path) -> None:
    late = Override("aten::tanh_backward.default", "CPU", doubled)
    with opscope.record(tmp_path / "run", check=True, keep="last:1"):
        program(late)
    late.take_away()
    run = opscope.open_run(tmp_path / "run")
    assert {finding.step for finding in opscope.scan(run).findings} <= set(
        range(STEPS - STEPS // 5, STEPS)
    )


def test_one_of_the_last_fifth_of_the_calls_is_held_and_few_are_copied() -> None:
    budget, waiting = Budget(0.2), Held[int](None)
    signature = budget.signature(max, (torch.ones(2),), {})
    copies = 0
    for place in range(1, 1001):
        signature.seen += 1
        if place <= FIRST:
            budget.took(signature, 0.1, new=True)
        elif budget.holds(signature):
            waiting.put(signature, place, [torch.full((2,), float(place))], Given(outputs={}))
            copies += 1
        latest = next((call.request for call in waiting.calls.values()), place)
        assert place <= FIRST or place < FIRST * LATER or latest >= place / LATER
    assert copies < 30
    assert not Budget(0.0).holds(signature)
    assert not Budget(None).holds(signature)


def test_calls_are_let_go_with_their_step_with_a_later_check_and_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held, "ROOM", 100)
    waiting, one, other = Held[str](2), Signature(), Signature()
    piece = torch.zeros(20)
    waiting.put(one, "first", [piece], Given(outputs={}))
    waiting.put(other, "no room", [piece], Given(outputs={}))
    waiting.put(one, "again", [piece], Given(outputs={}))
    piece += 1
    assert [(call.request, float(call.pieces[0].sum())) for call in waiting.calls.values()] == [
        ("again", 0.0)
    ]
    waiting.step_ends()
    waiting.step_ends()
    assert waiting.size == 80
    waiting.step_ends()
    assert (waiting.size, waiting.calls) == (0, {})
    waiting.put(one, "third", [piece], Given(outputs={}))
    waiting.drop(one)
    waiting.put(other, "fourth", [piece], Given(outputs={}))
    assert [call.request for call in waiting.take()] == ["fourth"]
    assert waiting.size == 0


def test_a_later_call_is_copied_into_the_memory_of_the_one_before() -> None:
    waiting, signature = Held[str](None), Signature()
    source = torch.arange(4.0)
    waiting.put(signature, "first", [source], Given(outputs={}))
    (first,) = waiting.calls[signature].pieces
    source += 1
    waiting.put(signature, "second", [source], Given(outputs={}))
    source += 1
    (second,) = waiting.calls[signature].pieces
    assert second is first
    assert second.tolist() == [1.0, 2.0, 3.0, 4.0]
    waiting.put(signature, "longer", [torch.ones(5)], Given(outputs={}))
    assert [piece.tolist() for piece in waiting.calls[signature].pieces] == [[1.0] * 5]
    assert waiting.size == 20
