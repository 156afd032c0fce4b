# SPDX-License-Identifier: Apache-2.0
"""Layers that are thawed while a program trains: by an optimizer that is made for them then, which
steps after the one that a recorder knows of.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tests.compare.told_lines import compared, fitted, recorded, told_lines
from torch import nn

import opscope
from opscope.compare.api import Policy, pair_runs
from opscope.compare.pair.common_steps import in_common_steps

BATCHES = fitted(17, steps=6, rows=8, wide=5, out=3)

RATES = {4: 5e-3, 2: 2e-3, 0: 1e-3}  # by layer: the last trains from the beginning on


def network() -> nn.Sequential:
    torch.manual_seed(6)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3))


def original(_: str) -> None:
    model = network()
    optimizer = torch.optim.AdamW(
        [{"params": model[at].parameters(), "lr": rate} for at, rate in RATES.items()]
    )
    for step, (rows, wanted) in enumerate(BATCHES):
        for at in RATES:
            model[at].requires_grad_(step >= 4 - at)
        loss = nn.functional.mse_loss(model(rows), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def port(fault: str) -> None:
    held = {at: [one.detach().clone() for one in network()[at].parameters()] for at in RATES}
    optimizers = list[torch.optim.Optimizer]()
    for step, (rows, wanted) in enumerate(BATCHES):
        for at, rate in RATES.items():
            if step == 4 - at:
                own = [one.requires_grad_() for one in held[at]]
                times = 2 if fault and at == 2 else 1
                optimizers.append(torch.optim.AdamW(own, times * rate, foreach=True))
        made = rows
        for at in sorted(RATES):
            made = nn.functional.linear(made.tanh() if at else made, *held[at])
        (made - wanted).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()  # thawed
            optimizer.zero_grad()


def test_an_optimizer_that_is_made_later_is_silent(tmp_path: Path) -> None:
    document = compared((port, original), tmp_path).document
    assert (document.verdict, document.findings) == ("clean", ())


def test_what_it_updates_is_in_the_step_of_its_gradients(tmp_path: Path) -> None:
    runs = [recorded(program, tmp_path / program.__name__) for program in (port, original)]
    pairing = in_common_steps(pair_runs(*map(opscope.open_run, runs), Policy()))
    assert pairing is not None
    for side in (pairing.target, pairing.golden):
        backward, calls = np.flatnonzero(side.in_phase("backward")), side.calls
        updates = np.flatnonzero(side.in_phase("optimizer"))
        last = backward[np.searchsorted(backward, updates) - 1]
        assert calls.step[updates].tolist() == calls.step[last].tolist()


def test_its_rate_is_told_where_it_steps(tmp_path: Path) -> None:
    first = compared((port, original), tmp_path, "rate").findings[0]
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert any(lines[line - 1].endswith("# thawed") for line in told_lines(first, "target"))
