# SPDX-License-Identifier: Apache-2.0
"""Substitutes give what the operator gives: types, strides, aliases, state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope.errors import UnavailableError, UsageError
from opscope.record.torch.budget import FIRST, FLOOR, NEVER, Budget
from opscope.substitute.callables import find_api
from opscope.substitute.examine import examine_places
from opscope.substitute.layout import Call, Laid, Memory
from opscope.substitute.perform import Bound
from opscope.substitute.registry import substitute_named
from opscope.substitute.rules import parse_rules, rule_for

pytestmark = pytest.mark.usefixtures("one_process")


def in_place() -> list[torch.Tensor]:
    base = torch.arange(12.0).reshape(3, 4)
    view = base.t()[1:]
    result = view.mul_(3)
    assert result is view
    return [base, result]


def out_variant() -> list[torch.Tensor]:
    out = torch.empty(4, 2).t()
    given = torch.add(torch.ones(2, 4), torch.ones(2, 4), alpha=2, out=out)
    assert given is out
    return [out]


def strides() -> list[torch.Tensor]:
    x = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    return [torch.relu(x - 5), torch.cat([x, x], 1)]


def running_statistics() -> list[torch.Tensor]:
    norm = torch.nn.BatchNorm1d(3)
    return [norm(torch.arange(12.0).reshape(4, 3)).detach(), norm.running_mean, norm.running_var]


def generator() -> list[torch.Tensor]:
    torch.manual_seed(3)
    first = torch.rand(5)
    return [first, torch.empty(3).bernoulli_(0.5), torch.rand(2)]


def lists() -> list[torch.Tensor]:
    return [
        *torch._foreach_add([torch.ones(2), torch.ones(3)], 1.5),
        *torch.topk(torch.tensor([3.0, 1.0, 2.0]), 2),
    ]


def overlapping() -> list[torch.Tensor]:
    x = torch.ones(3, 1).expand(3, 4)
    return [x + x, x.sum(1)]


@pytest.mark.parametrize(
    "program",
    [in_place, out_variant, strides, running_statistics, generator, lists, overlapping],
    ids=lambda p: p.__name__,
)
@pytest.mark.parametrize("kind", ["cpu", "float64"])
def test_everything_but_the_kernel_is_kept(
    program: Callable[[], list[torch.Tensor]], kind: str
) -> None:
    if program is generator and kind == "float64":
        pytest.skip("wider random numbers are other numbers")
    before = program()
    with opscope.substitute("*", to=kind) as substituted:
        after = program()
    assert sum(substituted.calls.values()) > 0
    for one, other in zip(before, after, strict=True):
        assert (one.dtype, one.shape, one.stride(), one.storage_offset()) == (
            other.dtype,
            other.shape,
            other.stride(),
            other.storage_offset(),
        )
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def twice(x: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, 2.0)


def test_a_function_of_the_users_and_what_cannot_be_named() -> None:
    with opscope.substitute("aten::gelu", to=twice):
        assert torch.nn.functional.gelu(torch.zeros(2)).tolist() == [2.0, 2.0]
    with pytest.raises(UsageError, match="found by its name"):
        opscope.substitute("aten::gelu", to=lambda x: x)
    with pytest.raises(UsageError, match="not one of"):
        opscope.substitute("aten::gelu", to="gpu")


def test_an_operator_without_a_substitute_runs_itself_and_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with opscope.substitute("aten::linalg_qr", to="decomposition") as substituted:
        assert torch.linalg.qr(torch.eye(2))[0].abs().tolist() == [[1, 0], [0, 1]]
    assert "no decomposition" in substituted.refused["aten::linalg_qr.default"]
    assert "linalg_qr" in capsys.readouterr().err


def test_rules() -> None:
    rules = parse_rules("aten::native_group_norm*=cpu; mm,bmm=decomposition")
    assert [rule.kind for rule in rules] == ["cpu", "decomposition"]
    found = rule_for(rules, "aten::bmm.default", None)
    assert found is not None
    assert found.kind == "decomposition"
    assert rule_for(rules, "aten::add.Tensor", None) is None
    for text in ("aten::mm", "=cpu", "mm=npu", "", "mm=function", "mm=cpu:x"):
        with pytest.raises(UsageError):
            parse_rules(text)
    assert substitute_named("function:math:sqrt").name == "function"


def test_functions_of_dumps_are_operations_on_tensors_only() -> None:
    assert find_api("Functional.linear") is torch.nn.functional.linear
    assert find_api("Tensor.__add__") is torch.Tensor.__add__
    for name in (
        "Torch.load",
        "Torch.save",
        "Tensor.numpy",
        "Functional.nothing",
        "os.system",
        "Torch.__dict__",
    ):
        with pytest.raises(UnavailableError):
            find_api(name)


def key(*arguments: Any) -> tuple[Any, ...]:
    return (torch.ops.aten.add.Tensor, arguments, {})


def test_the_first_calls_of_each_signature_are_checked_then_none_without_budget() -> None:
    budget = Budget(0.0)
    one, other = torch.ones(2), torch.ones(3)
    for tensor in (one, other):
        signature = budget.signature(*key(tensor))
        wanted = []
        for _ in range(8):
            wanted.append(budget.wants(signature, 1e9, 0.0))
            if wanted[-1]:
                budget.took(signature, 1.0, new=True)
        assert wanted == [True] * FIRST + [False] * 3


def test_of_large_tensors_two_calls_are_checked_without_budget() -> None:
    budget = Budget(0.0)
    for large in (torch.ones(1).expand(2 << 20), [torch.ones(2), torch.ones(1).expand(2 << 20)]):
        signature, wanted = budget.signature(*key(large)), []
        for _ in range(4):
            wanted.append(budget.wants(signature, 1e9, 0.0))
            if wanted[-1]:
                budget.took(signature, 1.0, new=True)
        assert wanted == [True, True, False, False]


def test_numbers_that_change_every_step_are_one_signature() -> None:
    budget = Budget(0.2)
    found = {id(budget.signature(*key(torch.ones(2), 1.0 / step))) for step in range(1, 40)}
    assert len(found) <= 9


def test_sampling_keeps_to_its_share_of_the_time() -> None:
    budget = Budget(0.2)
    signature = budget.signature(*key(torch.ones(2)))
    signature.checked, signature.seconds, start = FIRST, FIRST * 0.1, budget._started
    checked = 0
    for step in range(1, 1001):
        if budget.wants(signature, start + step * 0.1 + budget.spent, 0.0):
            budget.took(signature, 0.1, new=True)
            checked += 1
    assert 190 <= checked <= 201


def test_every_signature_is_sampled_even_where_recording_takes_the_whole_budget() -> None:
    budget = Budget(0.2)
    signatures = [budget.signature(*key(torch.ones(size))) for size in range(1, 11)]
    for signature in signatures:
        signature.checked, signature.seconds = FIRST, FIRST * 0.1
    budget.spent, start = 5.0, budget._started
    checked = [0] * len(signatures)
    for step in range(1, 4001):
        place = step % len(signatures)
        recording = step * 0.1  # as long as the program itself
        if budget.wants(
            signatures[place], start + step * 0.1 + recording + budget.spent, recording
        ):
            budget.took(signatures[place], 0.1, new=True)
            checked[place] += 1
    assert min(checked) >= 1
    assert max(checked) - min(checked) <= 2
    assert budget.sampled <= FLOOR * 0.2 * 400


@given(
    share=st.floats(0.01, 2.0),
    cost=st.floats(1e-4, 1.0),
    spent=st.floats(0.0, 10.0),
    elsewhere=st.floats(0.0, 10.0),
    sampled=st.floats(0.0, 5.0),
    others=st.integers(0, 3),
)
def test_a_declined_signature_rests_until_it_may_be_wanted(
    share: float, cost: float, spent: float, elsewhere: float, sampled: float, others: int
) -> None:
    budget = Budget(share)
    signature, *_ = [budget.signature(*key(torch.ones(size))) for size in range(1, others + 2)]
    signature.checked, signature.seconds, signature.sampled = FIRST, FIRST * cost, min(sampled, 1.0)
    budget.spent, budget.sampled = spent, sampled
    now = budget._started + spent + elsewhere
    rest = budget.rest(signature, now, elsewhere)
    margin = 1e-6 * (1.0 + rest.seconds)
    if rest.seconds > margin:
        assert not budget.wants(signature, now + rest.seconds - margin, elsewhere)
    later = now + rest.seconds + margin
    assert budget.wants(signature, later, elsewhere) is (rest.sampled <= sampled)
    assert budget.rest(signature, later, elsewhere).seconds == 0.0


def test_a_declined_signature_is_asked_for_when_a_call_is_to_be_held() -> None:
    budget = Budget(0.2)
    signature = budget.signature(*key(torch.ones(2)))
    signature.checked, signature.latest, signature.seen, budget.spent = FIRST, 10, 10, 1e9
    calls = budget.rest(signature, budget._started, 0.0).calls
    budget.rested(signature, int(calls))
    assert not budget.holds(signature)
    budget.rested(signature, 1)
    assert budget.holds(signature)


def test_what_is_never_sampled_rests_for_good() -> None:
    budget = Budget(0.0)
    assert budget.rest(budget.signature(*key(torch.ones(2))), budget._started, 0.0) == NEVER
    budget = Budget(0.2)
    view = budget.signature(*key(torch.ones(2)))
    view.sampling = False
    assert budget.rest(view, budget._started, 0.0) == NEVER


def test_the_true_result_is_asked_of_the_first_call_and_of_the_first_that_is_sampled() -> None:
    for share in (0.2, None):
        budget = Budget(share)
        signature = budget.signature(*key(torch.ones(2)))
        asked = []
        for _ in range(FIRST + 3):
            asked.append(budget.affords_truth(signature))
            budget.took(signature, 0.1, new=True)
        assert [number for number, wanted in enumerate(asked) if wanted] == [0, FIRST]


def test_how_far_beyond_its_share_a_program_was_held_up() -> None:
    budget = Budget(0.2)
    assert budget.beyond(0.0) == 0.0
    budget.took(budget.signature(*key(torch.ones(2))), 30.0, new=True)
    budget._started -= 100.0  # the program itself has taken 100 s - 30 s - 10 s
    assert budget.beyond(10.0) == pytest.approx(30.0 + 10.0 - 0.2 * 60.0, abs=1.0)
    assert Budget(None).beyond(1e9) == 0.0


def call(op: str, args: list[Any], shape: tuple[int, ...], stride: tuple[int, ...]) -> Call:
    laid = Laid(memory=0, dtype="float32", shape=shape, stride=stride, offset=1)
    return Call(
        op=op,
        args={"args": [{"tensor": "0"}, *args], "kwargs": {}},
        tensors={"0": laid},
        memories=(Memory(size=64),),
    )


@pytest.mark.parametrize(
    ("shape", "stride", "offset", "verdict"),
    [
        ((3, 2), (1, 3), 1, "agree"),
        ((3, 2), (2, 1), 1, "wrong"),
        ((3, 2), (1, 3), 2, "wrong"),
        ((2, 3), (3, 1), 1, "wrong"),
    ],
)
def test_a_view_has_the_elements_that_it_should(
    shape: tuple[int, ...], stride: tuple[int, ...], offset: int, verdict: str
) -> None:
    bound = Bound(
        call("aten::transpose.int", [0, 1], (2, 3), (3, 1)), [torch.empty(64, dtype=torch.uint8)]
    )
    laid = Laid(memory=0, dtype="float32", shape=shape, stride=stride, offset=offset)
    assert examine_places(bound, {"0": laid}).verdict.verdict == verdict


def test_the_step_of_a_dimension_of_one_element_says_nothing() -> None:
    bound = Bound(
        call("aten::unsqueeze.default", [0], (5,), (1,)), [torch.empty(64, dtype=torch.uint8)]
    )
    for first in (5, 7):
        laid = Laid(memory=0, dtype="float32", shape=(1, 5), stride=(first, 1), offset=1)
        assert examine_places(bound, {"0": laid}).verdict.verdict == "agree"
