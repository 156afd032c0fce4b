# SPDX-License-Identifier: Apache-2.0
"""Scalar arguments are inputs: NaN that arrives in one, and values that leave the tensors and come
back; NaN that a composite puts in.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

import opscope
from opscope.record.torch.sentinel import callee_below
from opscope.run.finding import Document, Finding


def recorded(program: Callable[[], object], place: Path) -> Document:
    with opscope.record(place / "run"):
        program()
    return opscope.scan(opscope.open_run(place / "run"))


def only(program: Callable[[], object], place: Path) -> Finding:
    (finding,) = recorded(program, place).findings
    return finding


def train(make: Callable[[Iterable[nn.Parameter]], Optimizer], rates: Iterable[float]) -> None:
    w = nn.Parameter(torch.ones(2))
    optimizer = make([w])
    for rate in rates:
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()


MAKERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda parameters: SGD(parameters, lr=0.1),
    "foreach": lambda parameters: Adam(parameters, lr=0.1, foreach=True),
    "fused": lambda parameters: Adam(parameters, lr=0.1, fused=True),
    "decay": lambda parameters: AdamW(parameters, lr=0.1),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_learning_rate_that_is_nan_has_arrived(name: str, tmp_path: Path) -> None:
    finding = only(lambda: train(MAKERS[name], [0.1, float("nan"), 0.1]), tmp_path)
    assert (
        finding.step,
        finding.phase,
        finding.evidence[0]["arrived"],
        finding.evidence[0]["reached"],
    ) == (
        1,
        "optimizer",
        True,
        "parameter",
    )
    assert "the learning rate is nan" in " ".join(finding.reasons)


def rate_of(share: torch.Tensor) -> None:
    train(MAKERS["sgd"], [0.1, 0.1 * share.item(), 0.1])


def test_a_value_that_left_the_tensors_is_known_when_it_comes_back(tmp_path: Path) -> None:
    finding = only(lambda: rate_of(torch.tensor(0.0) / torch.tensor(0.0)), tmp_path)
    assert (finding.op, finding.evidence[0]["reached"], finding.evidence[0]["arrived"]) == (
        "aten::div.Tensor",
        "parameter",
        False,
    )
    assert "came back: the learning rate is nan" in " ".join(finding.reasons)


def test_an_infinite_scale_that_came_back(tmp_path: Path) -> None:
    def program() -> None:
        w = nn.Parameter(torch.ones(2))
        scale = (torch.tensor(1.0) / torch.tensor(0.0)).item()
        (w * scale).sum().backward()

    finding = only(program, tmp_path)
    assert (finding.op, finding.evidence[0]["reached"]) == ("aten::div.Tensor", "loss")


def test_a_scale_that_nobody_computed_has_arrived(tmp_path: Path) -> None:
    finding = only(lambda: (nn.Parameter(torch.ones(2)) * float("nan")).sum().backward(), tmp_path)
    assert (finding.op, finding.evidence[0]["arrived"]) == ("aten::mul.Tensor", True)
    assert "argument 1 of" in " ".join(finding.reasons)


def test_values_that_are_logged_and_constants_that_are_limits_are_healthy(tmp_path: Path) -> None:
    def program() -> None:
        train(MAKERS["sgd"], [0.1, 0.1])
        (torch.tensor([0.0, 1.0]) / torch.tensor([0.0, 1.0])).nanmean().item()
        nearest = torch.full((2,), float("inf"))
        torch.minimum(nearest, torch.ones(2)).sum().item()
        torch.tensor([1.0, 2.0]).eq(float("nan"))

    assert recorded(program, tmp_path).findings == ()


COMPOSITES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "function": lambda m: torch.logdet(m) * 2,
    "method": lambda m: 2 * (m + 0).logdet(),
    "overload": lambda m: torch.ops.aten.logdet(m) * 2,
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_nan_that_a_composite_puts_in_is_the_composites(name: str, tmp_path: Path) -> None:
    matrix = torch.tensor([[0.0, 1.0], [1.0, 0.0]], requires_grad=True)
    finding = only(lambda: COMPOSITES[name](matrix).backward(), tmp_path)
    assert finding.op == "aten::logdet"
    assert str(finding.source).startswith(__file__)


def test_a_composites_nan_is_told_where_nobody_computes_with_it_and_not_where_it_is_left_out(
    tmp_path: Path,
) -> None:
    def program(*signs: float) -> None:
        torch.logdet(torch.diag(torch.tensor(signs)))

    assert only(lambda: program(1.0, -1.0), tmp_path / "negative").op == "aten::logdet"
    healthy = recorded(lambda: program(1.0, 1.0), tmp_path / "positive")
    assert healthy.findings == ()
    assert healthy.summary["hidden"] == 0


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="newer bytecode has columns")
def test_without_columns_the_callee_is_what_lies_below_its_arguments() -> None:
    def called(text: str) -> str | None:
        code = compile(text, "here", "eval")
        return callee_below(
            code,
            [each.offset for each in dis.get_instructions(code) if each.opname.startswith("CALL")][
                -1
            ],
        )

    assert [
        called(text)
        for text in ("f()", "m.f(1, 2 + 3)", "a.m.f(g(3), dim=4)", "f(x[0] * 2, [1, 2])")
    ] == ["f"] * 4
    assert called("m.f(*x)") is None


def test_a_nan_that_the_program_puts_in_itself_keeps_its_operator(tmp_path: Path) -> None:
    finding = only(
        lambda: (nn.Parameter(torch.ones(2)) * torch.full((2,), float("nan"))).sum().backward(),
        tmp_path,
    )
    assert finding.op == "aten::full.default"
