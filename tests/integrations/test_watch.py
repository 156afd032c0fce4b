# SPDX-License-Identifier: Apache-2.0
"""What the callbacks of all trainers share, driven as a trainer drives it;
tests/interop/test_trainers.py has the trainers.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.record.recorded import read

import opscope
from opscope.integrations.watch import Watch


def train(watch: Watch, *, large: int | None = None, steps: int = 4, guarded: bool = False) -> int:
    """Steps that were made before the watch said stop."""
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    watch.begin()
    for step in range(steps):
        x = torch.ones(2, 4) * (1e30 if step == large else 1)
        h = net(x)
        y = torch.where(h.abs() > 1e9, torch.zeros_like(h), h * h) if guarded else h * h
        optimizer.zero_grad()
        y.mean().backward()
        optimizer.step()
        if watch.step_ended(epoch=0.5, batch=step + 100):
            break
    watch.end()
    return step + 1


def test_it_stops_after_the_step_with_a_finding_and_names_it_as_the_trainer_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = Watch(tmp_path / "run", on_overflow="stop", values="none")
    assert train(watch, large=2) == 3
    document = opscope.scan(tmp_path / "run")
    assert [(each.step, each.op) for each in document.findings] == [(2, "aten::mul.Tensor")]
    assert document.summary["trainer"] == {"0": {"step 2": "epoch 0.5, batch 102"}}
    said = capsys.readouterr().err
    assert "aten::mul.Tensor" in said
    assert f"opscope scan {tmp_path / 'run'}" in said
    shown = subprocess.run(
        [sys.executable, "-m", "opscope", "scan", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "trainer  step 2 is epoch 0.5, batch 102" in shown.stdout


def test_it_keeps_going_unless_it_is_told_to_stop(tmp_path: Path) -> None:
    assert train(Watch(tmp_path / "run", values="none"), large=2) == 4
    assert opscope.scan(tmp_path / "run").findings[0].step == 2


@pytest.mark.parametrize("closure", ["", "placed", "named"])
def test_updates_by_gradients_that_are_not_finite_are_left_out(
    closure: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def weights(watch: Watch, large: int | None) -> torch.Tensor:
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
        watch.begin()
        for step in range(4):
            if step == large and watch.path is None:
                continue

            def loss(scale: float = 1e30 if step == large else 1.0) -> float:
                optimizer.zero_grad()
                h = net(torch.ones(2, 4) * scale)
                found = (h * h).mean()
                found.backward()
                return found.item()

            if not closure:
                loss()
            optimizer.step(
                *[loss] * (closure == "placed"), **{"closure": loss} if closure == "named" else {}
            )
            assert not watch.step_ended(batch=step)
        watch.end()
        return net.weight.detach().clone()

    watch = Watch(tmp_path / "run", on_overflow="skip", actions=("skip",), values="none")
    trained = weights(watch, 2)
    assert "aten::mul.Tensor" in capsys.readouterr().err
    assert [each.step for each in opscope.scan(tmp_path / "run").findings] == [2]
    assert not any("isfinite" in call.op for call in read(tmp_path / "run").calls)

    class Bare:
        path = None

        def begin(self) -> None: ...
        def end(self) -> None: ...
        def step_ended(self, **_: object) -> bool:
            return False

    assert torch.equal(trained, weights(Bare(), 2))  # type: ignore[arg-type]
    assert weights(Watch(tmp_path / "kept", values="none"), 2).isnan().any()  # no hook is left


def test_an_overflow_without_a_finding_stops_nothing(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "run", on_overflow="stop", values="none")
    assert train(watch, large=2, guarded=True) == 4
    assert opscope.scan(tmp_path / "run").findings == ()


def test_every_training_has_a_run_of_its_own(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "run", on_overflow="stop", values="none")
    assert train(watch, large=1) == 2
    first = watch.path
    assert train(watch) == 4
    assert watch.path != first
    assert opscope.scan(str(watch.path)).findings == ()


def test_inside_of_a_recording_it_joins_that(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "outer", values="none"):
        watch = Watch(tmp_path / "inner", on_overflow="stop")
        assert train(watch, large=1) == 2
    assert watch.path == str(tmp_path / "outer")
    assert not (tmp_path / "inner").exists()
    assert opscope.scan(tmp_path / "outer").findings[0].step == 1


def test_what_cannot_be_used_is_said_before_anything_is_trained() -> None:
    with pytest.raises(opscope.UsageError, match="on_overflow 'halt': not one of keep, stop"):
        Watch("x", on_overflow="halt")
    with pytest.raises(opscope.UsageError, match="values"):
        Watch("x", values="everything")


def test_where_nothing_can_be_recorded_the_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no directory")
    assert train(Watch(tmp_path / "file" / "run", on_overflow="stop"), large=1) == 4
    assert "not watched any more" in capsys.readouterr().err
