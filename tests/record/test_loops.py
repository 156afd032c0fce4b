# SPDX-License-Identifier: Apache-2.0
"""Loops that train tensors by hand have a step an iteration; no other loop of tensors has any."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import opscope
from opscope.record.torch.loops import Loops
from tests.record.recorded import record

FAULT = 3  # iteration
COUNT = 5
Program = Callable[[], None]


def planted(value: torch.Tensor, iteration: int) -> torch.Tensor:
    """The value; in one iteration a NaN, which `log` makes."""
    return value + torch.log(torch.tensor(-1.0)) if iteration == FAULT else value


def fresh() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(8, 3), torch.zeros(3, requires_grad=True)


def descent() -> None:
    data, weights = fresh()
    for i in range(COUNT):
        loss = planted((data @ weights - 1).square().mean(), i)
        loss.backward()
        with torch.no_grad():
            weights -= 0.1 * torch.ones(3)
            weights.grad = None


def several_tensors() -> None:
    """The loop that updates them is none of steps."""
    data, weights = fresh()
    held = [weights, torch.zeros(1, requires_grad=True)]
    for i in range(COUNT):
        loss = planted((data @ held[0] + held[1] - 1).square().mean(), i)
        gradients = torch.autograd.grad(loss, held)
        for each, gradient in zip(held, gradients, strict=True):
            each.data.sub_(0.1 * gradient)


def functions() -> None:
    """Each iteration is a call of a function of layers, which loops itself."""
    held = [torch.eye(3, requires_grad=True) for _ in range(4)]

    def model(x: torch.Tensor) -> torch.Tensor:
        for each in held:
            x = torch.tanh(x @ each)
        return x

    def step(i: int) -> None:
        planted(model(torch.ones(2, 3)).sum(), i).backward()
        with torch.no_grad():
            for each in held:
                each.sub_(0.1)
                each.grad = None

    for i in range(COUNT):
        step(i)


def replaced() -> None:
    """Weights that are made anew, by a loop that has no line of its own."""

    def step(weights: torch.Tensor, i: int) -> torch.Tensor:
        weights = weights.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(planted(weights.square().sum(), i), weights)
        return weights - 0.1 * gradient

    weights = torch.ones(3)
    [weights := step(weights, i) for i in range(COUNT)]


def batches() -> None:
    """Epochs of batches that a generator gives."""

    def give() -> Iterator[torch.Tensor]:
        for i in range(COUNT):
            yield torch.ones(2, 3) * i

    weights = torch.zeros(3, requires_grad=True)
    done = 0
    for _ in range(2):
        for batch in give():
            planted((batch @ weights).square().sum(), done).backward()
            with torch.no_grad():
                weights.sub_(0.1)
            weights.grad = None
            done += 1


def penalised() -> None:
    """A backward pass through a gradient: two passes are one iteration."""
    data, weights = fresh()
    for i in range(COUNT):
        loss = planted((data @ weights - 1).square().mean(), i)
        (gradient,) = torch.autograd.grad(loss, weights, create_graph=True)
        (loss + gradient.square().sum()).backward()
        with torch.no_grad():
            weights.sub_(0.1)
        weights.grad = None


def newton() -> None:
    """Rows of a Jacobian, over one graph."""
    point = torch.ones(2)
    for _ in range(COUNT):
        point = point.detach().requires_grad_()
        value = torch.stack([point[0] ** 2 - point[1], point.sum() - 1])
        rows = []
        for each in range(2):
            row = torch.zeros(2)
            row[each] = 1
            rows.append(torch.autograd.grad(value, point, row, retain_graph=True)[0])
        point = point - torch.linalg.solve(torch.stack(rows), value)


def power_iteration() -> None:
    matrix, vector = torch.ones(3, 3), torch.ones(3)
    for _ in range(COUNT):
        vector = matrix @ vector
        vector = vector / vector.norm()


def runge_kutta() -> None:
    state = torch.ones(2)
    for _ in range(COUNT):
        first = -state
        second = -(state + 0.05 * first)
        state = state + 0.1 * second


def prepares_and_trains() -> None:
    """What is prepared in a loop is no step of the training that follows."""
    data = []
    for i in range(COUNT):
        data.append(torch.ones(2, 3) * i)  # noqa: PERF401 - a loop
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for each in data:
        optimizer.zero_grad()
        model(each).sum().backward()
        optimizer.step()


def optimizer_of_tensors() -> None:
    data, weights = fresh()
    optimizer = torch.optim.SGD([weights], 0.1)
    for _ in range(COUNT):
        for part in data.split(4):  # gradients are accumulated
            (part @ weights).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def marked() -> None:
    data, weights = fresh()
    for _ in range(COUNT):
        for part in data.split(4):
            (part @ weights).sum().backward()
        opscope.mark_step()


def accumulated() -> None:
    data, weights = fresh()
    for i in range(COUNT):
        for part in data.split(4):
            planted((part @ weights).square().sum(), i).backward()
        with torch.no_grad():
            weights -= 0.1 * weights.grad
            weights.grad = None


def in_a_thread() -> None:
    """Threads beside the program's own loop have no steps."""
    thread = threading.Thread(target=several_tensors)
    thread.start()
    thread.join()


FAULTY = [
    (descent, COUNT),
    (several_tensors, COUNT),
    (functions, COUNT),
    (replaced, COUNT),
    (batches, 2 * COUNT),
    (penalised, COUNT),
    (accumulated, COUNT),
]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("program", "steps"),
    [
        *FAULTY,
        (newton, 1),
        (power_iteration, 1),
        (runge_kutta, 1),
        (prepares_and_trains, COUNT),
        (optimizer_of_tensors, COUNT),
        (in_a_thread, 1),
    ],
)
def test_steps(tmp_path: Path, program: Program, steps: int, plain: bool) -> None:
    found = record(tmp_path, program, plain=plain)
    assert {call.step for call in found.calls} == set(range(steps))
    assert opscope.scan(tmp_path / "run").summary["steps"] == steps


def test_marks_take_over(tmp_path: Path) -> None:
    found = record(tmp_path, marked)
    passes = [call.step for call in found.all("aten::mv", phase="forward")]
    assert passes == [step for step in range(COUNT) for _ in range(2)]


@pytest.mark.parametrize(("program", "steps"), FAULTY)
def test_the_verdict_names_the_step(tmp_path: Path, program: Program, steps: int) -> None:
    record(tmp_path, program)
    (finding, *_) = opscope.scan(tmp_path / "run").findings
    assert (finding.op, finding.step) == ("aten::log.default", FAULT)


def test_an_iteration_begins_with_the_call_that_came_back(tmp_path: Path) -> None:
    found = record(tmp_path, descent, levels="api,operator")
    for step in range(COUNT):
        (first, *_) = [call for call in found.calls if call.step == step and call.level == "api"]
        assert step == 0 or first.op == "torch.Tensor.matmul" or "matmul" in first.op
    assert all(
        call.parent is None or by_index(found, call.parent).step == call.step
        for call in found.calls
    )


def by_index(found: Any, index: int) -> Any:
    return next(call for call in found.calls if call.index == index)


def test_one_iteration_is_recorded_where_one_is_wanted(tmp_path: Path) -> None:
    found = record(tmp_path, functions, steps="2")
    whole = record(tmp_path / "whole", functions)
    assert {call.step for call in found.calls} == {2}
    assert [call.name for call in found.calls] == [
        call.name for call in whole.calls if call.step == 2
    ]


def test_a_pass_of_which_no_frame_calls_has_no_iterations() -> None:
    loops = Loops(lambda: pytest.fail("begun"))
    assert not loops.pass_begins()
    assert not loops.came_back()
