# SPDX-License-Identifier: Apache-2.0
"""Few of many parameters that decay on one side alone: the update that lets them is told, though an
optimizer may move a few of them otherwise by rounding; and the line at which others decay.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, ROWS, STEPS, LAYERS, RATE = 12, 10, 3, 4, 5e-3


def begun() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(61)
    return [torch.randn(WIDE, WIDE, generator=drawn) for _ in range(2 * LAYERS)]


def batches() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(62)
    return [torch.randn(ROWS, WIDE, generator=drawn) for _ in range(STEPS)]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList([nn.Linear(WIDE, WIDE) for _ in range(2 * LAYERS)])
        self.norm = nn.LayerNorm(WIDE)
        with torch.no_grad():
            for layer, weight in zip(self.projections, begun(), strict=True):
                layer.weight.copy_(weight)
                layer.bias.copy_(weight[0])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.projections:
            x = x + torch.tanh(layer(x))
        return self.norm(x)  # type: ignore[no-any-return]


def optimizer_of(model: Model, plain: str) -> torch.optim.Optimizer:
    """AdamW by which all decay but the parameters of this name."""
    groups: dict[bool, list[Tensor]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        groups[name == plain].append(parameter)
    rates = [{"params": groups[flag], "weight_decay": 0.0 if flag else 0.5} for flag in groups]
    return torch.optim.AdamW([each for each in rates if each["params"]], lr=RATE, eps=1e-4)


def original(_: str) -> None:
    model = Model()
    optimizer = optimizer_of(model, "norm.weight")
    for x in batches():
        loss = (model(x) - 1).pow(4).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()  # golden


class Ported(Model):
    def forward(self, x: Tensor) -> Tensor:
        for layer in self.projections:
            x = x + (x @ layer.weight.t() + layer.bias).tanh()
        centred = x - x.mean(-1, keepdim=True)
        unit = centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return unit * self.norm.weight + self.norm.bias


def ported(fault: str) -> None:
    model = Ported()
    optimizer = optimizer_of(model, "none" if fault else "norm.weight")
    for x in batches():
        loss = ((model(x) - 1) ** 4).sum() / x.numel()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()  # target


def by_hand(fault: str) -> None:
    """An optimizer written out, which lets those decay of which it knows the names."""
    model = Ported()
    held = dict(model.named_parameters())
    plain = {"norm.weight", "projections.3.weight"} if fault else {"norm.weight"}
    first, second = ({name: torch.zeros_like(value) for name, value in held.items()} for _ in "ab")
    for number, x in enumerate(batches(), 1):
        loss = ((model(x) - 1) ** 4).sum() / x.numel()
        grads = torch.autograd.grad(loss, [*held.values()])
        with torch.no_grad():
            for (name, value), grad in zip(held.items(), grads, strict=True):
                if name not in plain:
                    value.mul_(1 - RATE * 0.5)  # others
                first[name] = 0.9 * first[name] + 0.1 * grad
                second[name] = 0.999 * second[name] + 0.001 * grad * grad
                root = (second[name] / (1 - 0.999**number)).sqrt() + 1e-4
                value.sub_(RATE / (1 - 0.9**number) * first[name] / root)


# Told where a parameter decays that golden's does not, or where others do.
PORTS = [(ported, "# target", "decayed"), (by_hand, "# others", "left out")]


@pytest.mark.parametrize(
    ("port", "line", "fault"),
    [(port, line, each) for port, line, fault in PORTS for each in ("", fault)],
)
def test_a_parameter_that_decays_on_one_side_is_told_at_its_update(
    tmp_path: Path, port: Callable[[str], None], line: str, fault: str
) -> None:
    target, golden = recorded(port, tmp_path / "a", fault), recorded(original, tmp_path / "b")
    document = opscope.compare(target, golden).document
    if not fault:
        assert (document.verdict, document.findings) == ("clean", ())
        return
    (told,) = document.findings
    assert told.step == 0
    assert marked_line(__file__, line) in told_lines(told, "target")
    assert marked_line(__file__, "# golden") in told_lines(told, "golden")
