# SPDX-License-Identifier: Apache-2.0
"""What process.json says of a training: optimizers and what they hold, modes, ties that part."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from opscope.scan.training.facts import Facts, Optimizer, Parted, facts_of
from tests.record.recorded import record


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.other.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.one(x))


def test_facts_of_a_training(tmp_path: Path) -> None:
    model, apart = Tied(), nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([*model.parameters(), apart], 0.1)

    def program() -> None:
        for step in range(5):
            model.other.train(step % 2 == 0)
            optimizer.zero_grad()
            (model(torch.ones(2, 4)) * apart).sum().backward()
            if step == 2:
                model.other.weight = nn.Parameter(torch.ones(4, 4))
            optimizer.step()

    process = record(tmp_path, program).run.processes[0]
    assert "flags" in process.torch
    facts = facts_of(process.torch)
    names = ("one.weight", "one.bias", "other.bias")
    assert facts.optimizers == (Optimizer(kind="SGD", steps=5, parameters=names, unnamed=1),)
    assert facts.parted == (Parted(step=3, parameters=("one.weight", "other.weight")),)
    assert list(facts.modes) == ["other"]
    indices = [index for index, _ in facts.modes["other"]]
    assert [facts.trains("other", index) for index in indices] == [True, False, True, False, True]
    assert not facts.trains("other", indices[1] + 1)
    assert facts.trains("one", 0)
    assert facts.held == set(names)


def test_facts_that_are_not_as_they_should_be_are_none() -> None:
    assert facts_of({"training": {"optimizers": 3}}) == Facts()
    assert facts_of({}) == Facts()
