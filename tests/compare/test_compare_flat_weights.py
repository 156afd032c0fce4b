# SPDX-License-Identifier: Apache-2.0
"""Updates of weights that are one flat tensor on one side, and gradients of which one side has no
names, in a batch that the other cuts into parts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import fitted, marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, BATCH, STEPS, FIRST, SECOND = 6, 8, 3, 0.9, 0.95


def begun() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(15)
    return [torch.randn(WIDE, WIDE, generator=drawn) * 0.6 for _ in range(2)]


def batches() -> list[tuple[Tensor, Tensor]]:
    return fitted(16, steps=STEPS, rows=BATCH, wide=WIDE, out=WIDE)


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = (nn.Linear(WIDE, WIDE, bias=False) for _ in range(2))
        with torch.no_grad():
            self.into.weight.copy_(begun()[0])
            self.out.weight.copy_(begun()[1])

    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.silu(self.into(x))  # golden: gate
        return self.out(h)


def original(_: str) -> None:
    """In two parts of each batch, with an optimizer that remembers otherwise than it moves."""
    model = Original()
    kept = {weight: torch.zeros_like(weight) for weight in model.parameters()}
    for x, y in batches():
        model.zero_grad()
        total = 0.0
        for some, wanted in zip(x.chunk(2), y.chunk(2), strict=True):
            loss = nn.functional.mse_loss(model(some), wanted) / 2
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        with torch.no_grad():
            for weight, mean in kept.items():
                grad = weight.grad
                assert grad is not None
                update = mean * FIRST + grad * (1 - FIRST)  # golden: moves
                weight.add_(torch.tanh(update * 8), alpha=-0.05)
                mean.mul_(SECOND).add_(grad, alpha=1 - SECOND)  # golden: remembered


def ported(fault: str) -> None:
    """All at once, of one flat tensor."""
    flat = torch.cat([weight.t().flatten() for weight in begun()]).requires_grad_()
    mean = torch.zeros_like(flat)
    first, second = (SECOND, FIRST) if fault == "moves" else (FIRST, SECOND)
    for x, y in batches():
        into, out = (part.view(WIDE, WIDE) for part in flat.split(WIDE * WIDE))
        h = x @ into
        h = h * torch.sigmoid(h * 1.1 if fault == "gate" else h)  # target: gate
        loss = (h @ out - y).square().mean()
        (grad,) = torch.autograd.grad(loss, [flat])
        with torch.no_grad():
            update = mean.lerp(grad, 1 - first)  # target: moves
            flat.sub_(0.05 * torch.tanh(update * 8))
            mean.lerp_(grad, 1 - second)
        loss.item()


def rebound(fault: str) -> None:
    """The same with weights that each step binds anew."""
    flat = torch.cat([weight.flatten() for weight in begun()])
    mean = torch.zeros_like(flat)
    second = FIRST if fault == "remembered" else SECOND
    for x, y in batches():
        flat.requires_grad_()
        into, out = flat[: WIDE * WIDE].view(WIDE, WIDE), flat[WIDE * WIDE :].view(WIDE, WIDE)
        loss = (nn.functional.silu(x @ into.T) @ out.T - y).square().mean()
        (grad,) = torch.autograd.grad(loss, [flat])
        update = FIRST * mean + (1 - FIRST) * grad
        flat = flat.detach() - 0.05 * torch.tanh(update * 8)
        mean = second * mean + (1 - second) * grad  # target: remembered
        loss.item()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("golden") / "run")


@pytest.mark.parametrize("port", [ported, rebound])
def test_a_batch_that_is_cut_and_weights_that_are_one_are_nothing(
    golden: Path, tmp_path: Path, port: Callable[[str], None]
) -> None:
    assert not opscope.compare(recorded(port, tmp_path / "run"), golden).document.findings


@pytest.mark.parametrize("fault", ["moves", "gate"])
def test_what_is_done_otherwise_is_told_in_its_step(
    golden: Path, tmp_path: Path, fault: str
) -> None:
    target = recorded(ported, tmp_path / "run", fault)
    finding = opscope.compare(target, golden).document.findings[0]
    assert finding.step == 0
    assert marked_line(__file__, f"# target: {fault}") in told_lines(finding, "target")
    assert marked_line(__file__, f"# golden: {fault}") in told_lines(finding, "golden")


def test_an_update_is_followed_from_the_gradients_on(golden: Path, tmp_path: Path) -> None:
    target = recorded(rebound, tmp_path / "run", "remembered")
    finding = opscope.compare(target, golden).document.findings[0]
    assert marked_line(__file__, "# target: remembered") in told_lines(finding, "target")
    assert marked_line(__file__, "# golden: remembered") in told_lines(finding, "golden")
