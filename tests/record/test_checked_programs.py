# SPDX-License-Identifier: Apache-2.0
"""Programs that use what observation can get wrong keep every bit under --check, and with every
operator on the substitute `cpu`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import opscope
from opscope.record.torch import checker
from opscope.substitute.apart import Apart
from opscope.substitute.start import Started
from opscope.substitute.wire import Reply
from tests.record import programs

PROGRAMS = [
    programs.eval_fast_path,
    programs.checkpointing,
    programs.scaler,
    programs.several_threads,
    programs.views,
    programs.kinds,
    programs.inference,
    programs.in_place,
    programs.custom_function,
    programs.closure,
]


pytestmark = pytest.mark.usefixtures("one_process")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_no_bit_changes_and_nobody_is_accused(
    program: Callable[[], list[str]], tmp_path: Path
) -> None:
    alone = program()
    with opscope.record(tmp_path / "run", check=True):
        checked = program()
    run = opscope.open_run(tmp_path / "run")
    assert checked == alone
    assert not {"wrong", "flaky"} & set(run.processes[0].checked["verdicts"])
    with opscope.substitute("*", to="cpu"):
        substituted = program()
    assert substituted == alone


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_what_takes_the_default_type_is_made_again_in_that(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    """`aten::randn` and quotients of integers have it without an argument that says so."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with opscope.record(tmp_path / "run", check=True):
            numbers = torch.arange(6)
            _ = (
                torch.randn(3) + torch.ones(3),
                numbers / 4,
                numbers.sqrt(),
                torch.linspace(0, 1, 5),
                torch.full((2,), 0.5),
            )
    finally:
        torch.set_default_dtype(before)
    run = opscope.open_run(tmp_path / "run")
    assert opscope.scan(run).verdict == "clean"
    assert run.processes[0].checked["verdicts"]["agree"] >= 8


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor cannot flush them")
def test_denormal_numbers_that_the_program_flushes_are_flushed_there_too(tmp_path: Path) -> None:
    torch.set_flush_denormal(True)
    try:
        with opscope.record(tmp_path / "run", check=True):
            tiny = torch.full((64,), 3.0, dtype=torch.int32).view(torch.float32)
            _ = tiny.to(torch.float64), tiny.clamp(min=0.0), tiny.relu(), tiny * 2, tiny.sign()
    finally:
        torch.set_flush_denormal(False)
    assert opscope.scan(opscope.open_run(tmp_path / "run")).verdict == "clean"


@pytest.mark.parametrize("when", ["at once", "full"])
def test_a_process_that_ends_is_started_again_then_given_up(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checker, "Apart", {"at once": Dying, "full": Overwhelmed}[when])
    with opscope.record(tmp_path / "run", check=True):
        assert programs.linear() == programs.linear()
    assert "no longer checking" in capsys.readouterr().err


class Dying(Apart):
    """A process that is killed before it can answer."""

    def __init__(self, started: Started | None = None) -> None:
        super().__init__(started)
        self.process.kill()
        self.process.wait()


class Overwhelmed(Apart):
    """A process that answers nothing and ends as soon as an answer is waited for."""

    def _ready(self) -> bool:
        return False

    def _read(self) -> Reply:
        self.process.kill()
        raise self._ended()
