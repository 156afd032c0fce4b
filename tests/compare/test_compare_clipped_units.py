# SPDX-License-Identifier: Apache-2.0
"""Gradients that are clipped by units: in their place, or into tensors of the port's own."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.compare.told_lines import compared, fitted, told_lines
from torch import Tensor, nn

BATCHES = fitted(7, steps=3, rows=8, wide=6, out=4)
MOST, RATE = 0.05, 0.3


def network() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 4))


def original(_: str) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for rows, wanted in BATCHES:
        loss = nn.functional.mse_loss(model(rows), wanted)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            held, gradient = parameter.detach(), parameter.grad.detach()
            dims = tuple(range(1, held.dim()))
            room = held.norm(dim=dims, keepdim=bool(dims)).clamp_(min=1e-3).mul_(MOST)
            size = gradient.norm(dim=dims, keepdim=bool(dims))
            clipped = gradient * (room / size.clamp(min=1e-6))
            gradient.copy_(torch.where(size < room, gradient, clipped))
        optimizer.step()


def own_clip(parameter: Tensor, gradient: Tensor, fault: str) -> Tensor:
    flat, units = gradient.view(len(gradient), -1), parameter.view(len(parameter), -1)
    if gradient.dim() == 1:
        flat, units = flat.view(1, -1), units.view(1, -1)
    most = MOST if fault != "factor" else 2 * MOST
    room, size = most * units.norm(dim=1).clamp(min=1e-3), flat.norm(dim=1)
    scale = torch.where(size < room, 1.0, room / size.clamp(min=1e-6))
    return (flat * scale[:, None]).view_as(gradient)


def port(fault: str) -> None:
    model = network()
    for rows, wanted in BATCHES:
        loss = (model(rows) - wanted).square().mean()
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(RATE * own_clip(parameter, parameter.grad, fault))


def test_clipping_into_another_tensor_is_silent(tmp_path: Path) -> None:
    document = compared((port, original), tmp_path).document
    assert (document.verdict, document.findings) == ("clean", ())


def test_a_wrong_factor_of_clipping_is_told_where_it_clips(tmp_path: Path) -> None:
    first = compared((port, original), tmp_path, "factor").findings[0]
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    told = "\n".join(lines[line - 1] for line in sorted(told_lines(first, "target")))
    assert "most *" in told or "scale" in told
