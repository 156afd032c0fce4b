# SPDX-License-Identifier: Apache-2.0
"""When a step ends: each rule of docs/schema.md, on the state machine and on real programs."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Hashable
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint

import opscope
from opscope.record.steps import Steps
from tests.record import programs
from tests.record.recorded import record


class Log:
    """Counts ended steps, and which were skipped."""

    def __init__(self, *optimizers: str, module: str | None = None) -> None:
        self.ended: list[bool] = []
        self.live: set[Hashable] = set(optimizers)
        self.steps = Steps(self.ended.append, lambda: set(self.live), module=module)

    def optimize(self, optimizer: str, *, backward: bool = True) -> None:
        if backward:
            self.steps.backward()
        self.steps.optimizer_begins(optimizer)
        self.steps.optimizer_ends(optimizer)


def test_a_step_ends_after_its_optimizer() -> None:
    log = Log("a")
    for _ in range(3):
        log.optimize("a")
    assert log.ended == [False] * 3


def test_an_optimizer_without_a_backward_pass_ends_nothing() -> None:
    log = Log("a")
    log.optimize("a", backward=False)
    assert log.ended == []


def test_several_optimizers_end_one_step() -> None:
    log = Log("generator", "critic")
    for _ in range(3):
        log.optimize("critic")
        log.optimize("generator")
    assert log.ended == [False] * 3


def test_an_optimizer_that_is_made_later_goes_with_the_others_from_its_second_step_on() -> None:
    log = Log("head")
    log.optimize("head")
    log.live |= {"stem"}
    ended = []
    for _ in range(3):
        for name in ("head", "stem"):
            log.optimize(name, backward=name == "head")
            ended.append(len(log.ended))
    assert ended == [2, 2, 2, 3, 3, 4]


def test_an_optimizer_nobody_uses_holds_up_one_step_only() -> None:
    log = Log("a", "forgotten")
    for _ in range(4):
        log.optimize("a")
    assert log.ended == [False] * 4


def test_inner_passes_of_a_closure_are_one_step() -> None:
    log = Log("lbfgs")
    for _ in range(2):
        log.steps.optimizer_begins("lbfgs")
        for _ in range(3):
            log.steps.backward()
        log.steps.optimizer_ends("lbfgs")
    assert log.ended == [False, False]


def test_a_wrapper_that_steps_another_optimizer_is_one_step() -> None:
    log = Log("outer", "inner")
    for _ in range(2):
        log.steps.backward()
        log.steps.optimizer_begins("outer")
        log.steps.optimizer_begins("inner")
        log.steps.optimizer_ends("inner")
        log.steps.optimizer_ends("outer")
    assert log.ended == [False, False]


def test_a_skipped_step_ends_with_the_scaler() -> None:
    log = Log("a")
    log.steps.backward()
    log.steps.scaler_updates()
    log.optimize("a")
    log.steps.scaler_updates()
    assert log.ended == [True, False]


def test_marks_take_over() -> None:
    log = Log("a")
    log.optimize("a")
    log.steps.mark()
    log.optimize("a")
    log.steps.mark()
    assert log.ended == [False, False, False]


def test_the_first_mark_right_after_an_optimizer_means_the_step_it_ended() -> None:
    log = Log("a")
    for _ in range(3):
        log.optimize("a")
        log.steps.mark(idle=True)
    assert log.ended == [False] * 3
    never = Log()
    never.steps.mark(idle=True)
    assert never.ended == [False]


@pytest.mark.parametrize("plain", [False, True])
def test_marks_after_each_optimizer_step_end_no_empty_step(plain: bool, tmp_path: Path) -> None:
    def training() -> None:
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = model(torch.ones(1, 2)).sum()
            loss.backward()
            optimizer.step()
            loss.detach().item()
            optimizer.zero_grad(set_to_none=False)
            opscope.mark_step()

    found = record(tmp_path, training, plain=plain)
    assert [call.step for call in found.all("aten::addmm")] == [0, 1, 2]


def test_work_after_an_optimizer_is_a_step_of_its_own_at_the_first_mark(tmp_path: Path) -> None:
    def training() -> None:
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        for _ in range(2):
            model(torch.ones(1, 2))
            opscope.mark_step()

    assert [call.step for call in record(tmp_path, training).all("aten::addmm")] == [0, 1, 2]


def test_calls_of_a_module_are_steps() -> None:
    log = Log("a", module="net")
    for _ in range(3):
        log.steps.module_enters("net")
        log.steps.module_enters("net.inner")
        log.optimize("a")
    assert log.ended == [False, False]


@pytest.mark.parametrize(
    ("program", "steps"),
    [
        (programs.linear, 3),
        (programs.adversarial, 3),
        (programs.closure, 2),
        (programs.scaler, 4),
        (programs.views, 0),
    ],
)
def test_programs(tmp_path: Path, program: object, steps: int) -> None:
    found = record(tmp_path, program)  # type: ignore[arg-type]
    assert found.run.processes[0].steps == steps


def test_skipped_steps_are_told(tmp_path: Path) -> None:
    assert record(tmp_path, programs.scaler).run.processes[0].skipped_steps != ()


def test_mark_step_and_step_module(tmp_path: Path) -> None:
    def marked() -> None:
        for _ in range(3):
            torch.ones(2) + 1
            opscope.mark_step()

    assert [call.step for call in record(tmp_path / "a", marked).all("aten::add")] == [0, 1, 2]

    def inference() -> None:
        model = torch.nn.Sequential(torch.nn.Linear(2, 2))
        for _ in range(3):
            model(torch.ones(1, 2))

    found = record(tmp_path / "b", inference, step_module="0")
    assert [call.step for call in found.all("aten::addmm")] == [0, 1, 2]


def test_only_wanted_steps_are_recorded(tmp_path: Path) -> None:
    found = record(tmp_path, programs.linear, steps="1")
    assert {call.step for call in found.calls} == {1}
    found = record(tmp_path, programs.scaler, steps="0|3")
    assert {call.step for call in found.calls} == {0, 3}


@pytest.mark.parametrize("plain", [False, True])
def test_a_recording_that_ends_inside_a_call_leaves_no_mode_behind(
    plain: bool, tmp_path: Path
) -> None:
    """The step of a scaler ends in its update, an operator: torch puts the modes of a call back
    after it.
    """
    modes = []

    def program() -> None:
        programs.scaler()
        programs.linear()
        modes.append(len(_get_current_dispatch_mode_stack()))

    record(tmp_path / "early", program, plain=plain, steps="0")
    record(tmp_path / "last", programs.scaler, plain=plain, steps="0|3")
    assert modes == [0]
    assert not _get_current_dispatch_mode_stack()
    assert "Python" not in str(torch._C._dispatch_tls_local_include_set())


def test_without_an_optimizer_the_model_that_comes_back_after_a_backward_pass_begins_a_step() -> (
    None
):
    log = Log()
    for _ in range(3):
        log.steps.model_enters("critic")
        log.steps.backward()
        log.steps.model_enters("actor")
        log.steps.backward()
    assert log.ended == [False] * 2


def test_a_cell_that_takes_up_its_state_ends_nothing() -> None:
    log = Log()
    for _ in range(5):
        log.steps.model_enters("cell", continues=True)
    log.steps.backward()
    assert log.ended == []


def test_a_model_that_infers_begins_a_step_where_its_line_comes_back() -> None:
    log = Log()
    log.steps.model_enters("net", "warm up", infers=True)
    for _ in range(3):
        log.steps.model_enters("net", "left", infers=True)
        log.steps.model_enters("net", "right", infers=True)
    assert log.ended == [False] * 2


def test_of_an_encoder_and_a_decoder_the_encoder_begins_steps_once_it_came_back() -> None:
    log = Log()
    for _ in range(3):
        log.steps.model_enters("encoder", "e", infers=True)
        for _ in range(4):
            log.steps.model_enters("decoder", "d", infers=True)
    assert log.ended == [False] * (3 + 2)  # the tokens of the first sentence, then a sentence each


def test_evaluation_beside_an_optimizer_ends_nothing() -> None:
    log = Log("a")
    for _ in range(2):
        for _ in range(5):
            log.steps.model_enters("net", "evaluate", infers=True)
        log.steps.model_enters("net", "train")
        log.optimize("a")
    assert log.ended == [False] * 2


def test_evaluation_once_the_optimizer_is_gone_has_steps() -> None:
    log = Log("a")
    log.optimize("a")
    log.live.clear()
    for _ in range(3):
        log.steps.model_enters("net", "evaluate", infers=True)
    assert log.ended == [False] * 3


def test_an_optimizer_that_is_made_after_a_warm_up_is_seen_before_its_first_step() -> None:
    log = Log()
    for _ in range(6):
        log.steps.model_enters("net", "warm up", infers=True)
    before = len(log.ended)
    log.live.add("a")
    for _ in range(3):
        log.steps.model_enters("net", "train")
        log.steps.backward()
    assert log.ended[before:] == []


class Decoder(torch.nn.Module):
    """generate() calls the model once a token, as that of transformers does."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.body(x))

    @torch.no_grad()
    def generate(self, x: torch.Tensor, count: int) -> torch.Tensor:
        for _ in range(count):
            x = self(x)
        return x


def plain_loop() -> None:
    model = Decoder()
    for _ in range(3):
        model(torch.ones(1, 4))


def inference_mode() -> None:
    model = Decoder().eval()
    with torch.inference_mode():
        for _ in range(3):
            model(torch.ones(1, 4))


def greedy() -> None:
    Decoder().generate(torch.ones(1, 4), 3)


def evaluation_inside_training() -> None:
    model = Decoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for _ in range(2):
                model(torch.ones(1, 4))


def unrolled() -> None:
    """A cell over a sequence, updated by hand."""
    cell = torch.nn.RNNCell(4, 4)
    for _ in range(3):
        state = torch.zeros(1, 4)
        for _ in range(5):
            state = cell(torch.ones(1, 4), state)
        state.sum().backward()
        with torch.no_grad():
            for parameter in cell.parameters():
                parameter.sub_(0.1 * parameter.grad)
                parameter.grad = None


@pytest.mark.parametrize(
    ("program", "steps"),
    [
        (plain_loop, 3),
        (inference_mode, 3),
        (greedy, 3),
        (evaluation_inside_training, 4),
        (unrolled, 3),
    ],
)
def test_loops_of_models(tmp_path: Path, program: object, steps: int) -> None:
    gc.collect()  # an optimizer of another test that lives yet
    found = record(tmp_path, program)  # type: ignore[arg-type]
    assert len({call.step for call in found.calls}) == steps


@pytest.mark.parametrize(
    ("program", "steps"), [(plain_loop, 3), (greedy, 3), (evaluation_inside_training, 3)]
)
def test_the_last_call_of_a_loop_is_a_step(tmp_path: Path, program: object, steps: int) -> None:
    """What follows the last optimizer step is none: a loss that is printed, an evaluation."""
    gc.collect()  # an optimizer of another test that lives yet
    record(tmp_path, program)  # type: ignore[arg-type]
    assert opscope.scan(tmp_path / "run").summary["steps"] == steps


def test_accumulated_gradients_of_an_optimizer_are_one_step() -> None:
    log = Log("a")
    for _ in range(4):
        log.steps.model_enters("model")
        log.steps.backward()
    assert log.ended == []


def test_a_loop_that_updates_by_hand_has_steps(tmp_path: Path) -> None:
    def by_hand() -> None:
        model = torch.nn.Linear(2, 2)
        for _ in range(3):
            torch.nn.functional.mse_loss(
                torch.nn.ReLU()(model(torch.ones(1, 2))), torch.zeros(1, 2)
            ).backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(0.1 * parameter.grad)
                    parameter.grad = None

    recorded = record(tmp_path, by_hand)
    assert {call.step for call in recorded.all("aten::addmm.default")} == {0, 1, 2}


def test_checkpointing_without_an_optimizer_stays_within_its_step(tmp_path: Path) -> None:
    def recomputed() -> None:
        model = torch.nn.Linear(2, 2)
        for _ in range(2):
            checkpoint(
                model, torch.ones(1, 2, requires_grad=True), use_reentrant=True
            ).sum().backward()

    recorded = record(tmp_path, recomputed)
    assert sorted((call.step, call.phase) for call in recorded.all("aten::addmm.default")) == [
        (0, "forward"),
        (0, "recompute"),
        (1, "forward"),
        (1, "recompute"),
    ]


def adversaries() -> tuple[Callable[[], None], list[torch.optim.Optimizer]]:
    """A loop of two models, each with its optimizer, which step in turn."""
    makes, tells = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
    optimizers = [torch.optim.Adam(model.parameters()) for model in (tells, makes)]

    def train() -> None:
        for _ in range(3):
            for optimizer, noise in zip(
                optimizers, (makes(torch.ones(1, 2)).detach(), None), strict=True
            ):
                optimizer.zero_grad()
                tells(makes(torch.ones(1, 2)) if noise is None else noise).sum().backward()
                optimizer.step()

    return train, optimizers


def test_an_optimizer_that_was_left_behind_is_not_waited_for(tmp_path: Path) -> None:
    first, behind = adversaries()
    first()
    trained = record(tmp_path / "second", adversaries()[0])
    again = record(tmp_path / "third", adversaries()[0])
    assert behind
    assert {call.step for call in trained.calls} == {0, 1, 2}
    assert [(call.step, call.name) for call in trained.calls] == [
        (call.step, call.name) for call in again.calls
    ]


def test_an_optimizer_whose_model_nobody_calls_is_not_waited_for(tmp_path: Path) -> None:
    unused = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    train, optimizers = adversaries()
    assert unused
    assert len(optimizers) == 2
    updates = Counter(call.step for call in record(tmp_path, train).all("aten::addcmul_"))
    alone = Counter(call.step for call in record(tmp_path / "alone", train).all("aten::addcmul_"))
    assert sum(updates.values()) == sum(alone.values())
    assert [updates[step] for step in sorted(updates)] == [4, 4, 4]


def test_optimizers_that_had_trained_before_step_together_from_the_second_step_on(
    tmp_path: Path,
) -> None:
    train, optimizers = adversaries()
    train()
    updates = Counter(call.step for call in record(tmp_path, train).all("aten::addcmul_"))
    assert optimizers
    assert [updates[step] for step in sorted(updates)] == [2, 2, 4, 4]  # one for each parameter
