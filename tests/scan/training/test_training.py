# SPDX-License-Identifier: Apache-2.0
"""What scan says of whole trainings: nothing of healthy ones, the fault of the others."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from tests.record.recorded import record
from tests.scan.training.faulty import FAULTY, Fault, gradients_pile_up
from tests.scan.training.healthy import PROGRAMS

import opscope
from opscope.run.finding import KINDS, WARNINGS
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call
from opscope.scan.training import rules


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_nothing_is_said_of_healthy_trainings(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    document = opscope.scan(record(tmp_path, PROGRAMS[name]).run)
    assert document.findings == ()
    assert document.summary["training"] == ()


@pytest.mark.parametrize("fault", FAULTY, ids=lambda fault: fault.program.__name__)
def test_a_fault_is_told(fault: Fault, tmp_path: Path) -> None:
    torch.manual_seed(0)
    document = opscope.scan(record(tmp_path, fault.program).run)
    kinds = [finding.kind for finding in document.findings]
    told = [note["kind"] for note in document.summary["training"]]
    assert (kinds[:1], told[:1]) == (([fault.kind], []) if fault.finding else ([], [fault.kind]))
    said = document.findings[0].evidence[0] if fault.finding else document.summary["training"][0]
    assert set(fault.parameters) <= set(said["parameters"])


def test_every_kind_that_a_rule_may_say_is_explained() -> None:
    """By opscope explain, from one table; and none is there that no rule says."""
    places = Path(rules.__file__).parent.glob("*.py")
    said = {
        argument.value.value
        for place in places
        for node in ast.walk(ast.parse(place.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        for argument in node.keywords
        if argument.arg == "kind" and isinstance(argument.value, ast.Constant)
    }
    assert said - set(KINDS) == set(WARNINGS)


def test_a_recording_that_leaves_calls_out_says_nothing_of_what_it_did_not_see(
    tmp_path: Path,
) -> None:
    for name, options in (("all", {}), ("some", {"skip": "aten::zero_*"})):
        run = record(tmp_path / name, gradients_pile_up, **options).run
        told = opscope.scan(run).summary["training"]
        assert bool(told) is (name == "all")


def test_an_index_that_a_flipped_bit_made_large_costs_no_memory() -> None:
    facts = {"process": 0, "rank": 0, "level": "operator", "phase": "forward", "op": "aten::mm"}
    places = [(0, 0), (1, 0), (1 << 39, 0), (3, 1)]
    calls = [Call(index=index, step=step, name=f"#{index}", **facts) for index, step in places]
    run = MemoryRun(RunInfo(path="rows", format="test"), calls=calls)
    assert opscope.scan(run).verdict == "clean"
