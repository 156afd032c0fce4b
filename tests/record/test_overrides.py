# SPDX-License-Identifier: Apache-2.0
"""What a program registers above kernels is judged: formulas of torch's operators, compositions,
formulas of its own operators.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opscope
from opscope.repro.write import cut
from opscope.run.finding import Finding
from opscope.run.names import resolve

Kernel = Callable[..., Any]


pytestmark = pytest.mark.usefixtures("one_process")


def train(function: Kernel) -> list[float]:
    torch.manual_seed(0)
    model, weight = nn.Linear(8, 8), nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([*model.parameters(), weight], 0.1)
    losses = []
    for _ in range(2):
        loss = function(model(torch.randn(5, 8)), weight).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def checked(
    place: Path,
    program: Callable[[], list[float]],
    *,
    op: str = "",
    kernel: Kernel | None = None,
    key: str = "",
) -> Any:
    """Losses, and the findings, of a program under --check, while one function of torch is
    replaced.
    """
    with opscope.record(place, check=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = torch.library.Library("aten", "IMPL") if kernel is not None else None
        if library is not None:
            library.impl(op, kernel, key)
        try:
            losses = program()
        finally:
            if library is not None:
                library._destroy()
    return losses, opscope.scan(opscope.open_run(place)).findings


class Silu(torch.autograd.Function):
    """SiLU by its own formula; factor makes it wrong."""

    factor = 1.0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * s * (1 + x * (1 - s)) * Silu.factor


def silu(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return nn.functional.silu(x) * weight


@pytest.mark.parametrize("key", ["AutogradCPU", "Autograd"])
@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_the_formula_of_an_operator(
    key: str, factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Silu, "factor", factor)
    _, findings = checked(
        tmp_path / "run", lambda: train(silu), op="silu", kernel=Silu.apply, key=key
    )
    assert [finding.op for finding in findings] == (["aten::silu.default"] if factor != 1 else [])
    if findings:
        assert "gradient by its own formula" in findings[0].reasons[0]
        assert any("gradient of argument 0" in reason for reason in findings[0].reasons)
        run = opscope.open_run(tmp_path / "run")
        case = cut(run, resolve(run, findings[0].call or "").call).case
        assert (case.level, case.failure.kind, [row.slot for row in case.tensors]) == (
            "api",
            "mismatch",
            ["0", "upstream.0"],
        )


def test_a_composition(tmp_path: Path) -> None:
    def linear(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return torch.matmul(x, weight.t())  # the bias is lost

    _, findings = checked(
        tmp_path / "run",
        lambda: train(silu),
        op="linear",
        kernel=linear,
        key="CompositeImplicitAutograd",
    )
    assert findings[0].op == "aten::linear.default"
    assert findings[0].source is not None


def test_a_substituted_operator_keeps_torchs_own_function(tmp_path: Path) -> None:
    """What the program registers above its kernel is left out, and registered for operators that no
    rule names.
    """
    wrong = {"silu": lambda x: 2 * torch.sigmoid(x) * x, "addcmul": lambda x, a, b, *, value=1: x}

    def program() -> list[float]:
        x = torch.arange(6.0)
        return [*nn.functional.silu(x).tolist(), *torch.addcmul(x, x, x).tolist()]

    healthy = program()
    with opscope.record(tmp_path / "run", substitute="aten::silu*=cpu"):
        library = torch.library.Library("aten", "IMPL")
        for op, function in wrong.items():
            library.impl(op, function, "AutogradCPU")
        try:
            seen = program()
        finally:
            library._destroy()
    assert seen[:6] == healthy[:6]
    assert seen[6:] == list(range(6))


def test_what_was_registered_before_recording_is_told(tmp_path: Path) -> None:
    library = torch.library.Library("aten", "IMPL")
    library.impl("silu", Silu.apply, "AutogradCPU")
    try:
        with opscope.record(tmp_path / "run", check=True):
            train(silu)
    finally:
        library._destroy()
    unjudged = opscope.open_run(tmp_path / "run").processes[0].checked["unjudged"]
    assert "before" in unjudged["aten::silu"]["reason"]


def test_a_program_whose_functions_are_transformed_goes_on(tmp_path: Path) -> None:
    def program() -> list[float]:
        gradient = torch.func.grad(lambda x: nn.functional.silu(x).sum())
        x = torch.linspace(-2, 2, 6).reshape(2, 3)
        return [*gradient(x).flatten().tolist(), *torch.func.vmap(gradient)(x).flatten().tolist()]

    library = torch.library.Library("aten", "IMPL")
    with opscope.record(tmp_path / "run", check=True):
        library.impl(
            "linear",
            lambda x, w, b=None: torch.matmul(x, w.t()) + (0 if b is None else b),
            "CompositeImplicitAutograd",
        )
        try:
            watched = [
                *program(),
                *torch.func.vmap(nn.functional.linear, (0, None))(torch.ones(2, 3), torch.eye(3))
                .flatten()
                .tolist(),
            ]
        finally:
            library._destroy()
    assert watched == [*program(), *[1.0] * 6]
    assert opscope.scan(opscope.open_run(tmp_path / "run")).verdict == "clean"


def define(name: str, forward: Kernel, backward: Kernel) -> Kernel:
    """An operator of the program's own: backward(gradient, x, weight) gives the two gradients."""

    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = forward(x, weight)
        return result

    run.__annotations__ = {"x": torch.Tensor, "weight": torch.Tensor, "return": torch.Tensor}
    op = torch.library.custom_op(f"opscope_tests::{name}", run, mutates_args=())
    op.register_fake(lambda x, weight: torch.empty_like(x))
    op.register_autograd(
        lambda ctx, grad: backward(grad, *ctx.saved_tensors),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    return op


def right(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return grad * torch.cos(x) * weight, (grad * torch.sin(x)).sum(0)


OWN: dict[str, tuple[Kernel, Kernel, bool]] = {
    "right": (lambda x, w: torch.sin(x) * w, right, False),
    "wrong_weight": (
        lambda x, w: torch.sin(x) * w,
        lambda g, x, w: (right(g, x, w)[0], right(g, x, w)[1] * 1.05),
        True,
    ),
    "wrong_by_little": (
        lambda x, w: torch.sin(x) * w,
        lambda g, x, w: (right(g, x, w)[0] + 0.002 * g * x * w, right(g, x, w)[1]),
        True,
    ),
    "straight_through": (lambda x, w: (x * w).round(), lambda g, x, w: (g, None), False),
    "reversed": (lambda x, w: x.clone(), lambda g, x, w: (-g, None), False),
    "kinked": (
        lambda x, w: x.relu() * w,
        lambda g, x, w: (g * (x > 0) * w, (g * x.relu()).sum(0)),
        False,
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_the_formula_of_a_programs_own_operator(name: str, tmp_path: Path) -> None:
    forward, backward, wrong = OWN[name]
    alone = train(define(f"{name}_alone", forward, backward))
    losses, findings = checked(tmp_path / "run", lambda: train(define(name, forward, backward)))
    assert losses == alone
    found: list[Finding] = list(findings)
    assert [(each.op, each.confidence) for each in found] == (
        [(f"opscope_tests::{name}.default", "suspected")] if wrong else []
    )
