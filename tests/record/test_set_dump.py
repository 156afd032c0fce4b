# SPDX-License-Identifier: Apache-2.0
"""What the program chose with set_dump is recorded, forward and backward, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import opscope
from opscope.errors import UsageError
from opscope.record.active import active
from opscope.record.chosen import Chosen
from opscope.run.query import calls


@pytest.fixture(autouse=True)
def _chosen_by_this_test_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active, "chosen", Chosen())


def names(path: Path, module: torch.nn.Module) -> set[str]:
    with opscope.record(path, set_dump=True) as recording:
        module(torch.ones(3, 4)).sum().backward()
    assert recording.path is not None
    return {
        call.name for call in calls(opscope.open_run(recording.path)) if call.level == "operator"
    }


def small() -> torch.nn.Sequential:
    inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), inner)


def test_a_module_with_what_is_inside_it_and_its_gradients(tmp_path: Path) -> None:
    model = small()
    opscope.set_dump(model[2])
    opscope.set_dump(model[2][1], enabled=False)
    found = names(tmp_path / "run", model)
    assert {"2.0:addmm#1", "2.0:mm~bwd#1"} <= found
    assert not {name for name in found if not name.startswith("2.0:")}


@pytest.mark.parametrize(
    "operator", ["aten::relu", "relu", torch.ops.aten.relu, torch.ops.aten.relu.default]
)
def test_an_operator(tmp_path: Path, operator: object) -> None:
    opscope.set_dump(operator)
    found = names(tmp_path / "run", small())
    assert "1:relu#1" in found
    assert {name.partition(":")[0] for name in found} == {
        "1"
    }  # the API torch.relu runs a detach of its own too


def test_nothing_chosen_records_nothing(tmp_path: Path) -> None:
    assert names(tmp_path / "run", small()) == set()


def test_without_the_switch_everything_is_recorded(tmp_path: Path) -> None:
    opscope.set_dump("relu")
    with opscope.record(tmp_path / "run") as recording:
        small()(torch.ones(3, 4))
    assert recording.path is not None
    assert "0:addmm#1" in {call.name for call in calls(opscope.open_run(recording.path))}


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(UsageError, match="neither a module nor an operator"):
        opscope.set_dump(3.5)
