# SPDX-License-Identifier: Apache-2.0
"""Initialisations that reach nothing are nobody's cause, and what equal statistics hide is bounded
by what they say.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.questions.builder import Builder, state
from torch import nn

import opscope
from opscope.compare.api import compare
from opscope.run.memory import MemoryRun


def trained(path: Path, *, seed: int, load: bool, factor: float = 1.0) -> Path:
    """A layer of other initial weights that is loaded, or not, and a head that nobody calls."""
    torch.manual_seed(seed)
    with opscope.record(path):
        layer, _head = nn.Linear(8, 8), nn.Linear(8, 3)
        if load:
            layer.load_state_dict(
                {"weight": torch.arange(64.0).reshape(8, 8).sin(), "bias": torch.arange(8.0).cos()}
            )
        (layer(torch.arange(16.0).reshape(2, 8) / 16) * factor).square().sum().backward()
    return path


def test_what_is_overwritten_or_never_read_accuses_nobody(tmp_path: Path) -> None:
    document = opscope.compare(
        trained(tmp_path / "one", seed=1, load=True), trained(tmp_path / "two", seed=2, load=True)
    ).document
    assert document.verdict == "clean", document.findings
    assert any("reached nothing" in warning for warning in document.summary["warnings"])


def test_the_cause_behind_it_is_named(tmp_path: Path) -> None:
    one, two = (
        trained(tmp_path / "one", seed=1, load=True, factor=1.01),
        trained(tmp_path / "two", seed=2, load=True),
    )
    assert [finding.op for finding in opscope.compare(one, two).findings] == ["aten::mul.Tensor"]


def test_a_draw_that_is_read_is_named(tmp_path: Path) -> None:
    first = opscope.compare(
        trained(tmp_path / "one", seed=1, load=False), trained(tmp_path / "two", seed=2, load=False)
    ).findings[0]
    assert first.op == "aten::uniform_.default"


def updated(gradient: float, digest: int) -> MemoryRun:
    """A parameter of two values that an update leaves with the statistics it has in the other
    run.
    """
    built = Builder()
    kind = {"dtype": "float16", "shape": (8,), "size": 8}
    before = {**kind, "neg": 0, "pos": 8, "min": 1.0, "mean": 1.0, "l2norm": 2.828}
    after = {**before, "min": 0.999, "mean": 0.9998, "l2norm": 2.8279, "digest": digest + 100}
    given = {
        **kind,
        "neg": 4,
        "pos": 4,
        "min": -gradient,
        "max": gradient,
        "mean": 0.0,
        "l2norm": gradient,
        "digest": digest,
    }
    built.call("mul", [state(1, digest=1)], [state(2, **given)])
    built.call("add_", [state(0, **before, digest=2), state(2, **given)], [state(3, **after)])
    return built.run()


def test_equal_statistics_are_no_infinite_difference() -> None:
    comparison = compare(updated(0.0152, 9), updated(0.0154, 8))
    worst = max(
        float(detail.error)
        for detail in comparison.details()
        if detail.target is not None and detail.target.slot == "0"
    )
    assert worst < 0.1
    assert all(finding.op != "aten::add_.Tensor" for finding in comparison.findings)


def test_an_opened_call_is_that_of_the_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that is proposed names the step where a run has several."""
    from opscope.cli import main

    for name, factor in (("one", 1.5), ("two", 1.0)):
        with opscope.record(tmp_path / name):
            for _ in range(3):
                torch.ones(4) * factor
                opscope.mark_step()
    main(["compare", str(tmp_path / "one"), str(tmp_path / "two")])
    assert "s0/" in capsys.readouterr().out.partition("next")[2]
