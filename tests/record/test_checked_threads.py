# SPDX-License-Identifier: Apache-2.0
"""Several threads of a program whose calls are checked, or run on substitutes, at the same time."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import opscope
from opscope.record.torch.substitution import SubstituteMode, Substitution
from opscope.run.selection import parse_pattern
from opscope.substitute.rules import Rule

THREADS = 4
SHAPES = range(1, 40)


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads that are interrupted all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@contextmanager
def wrong_sigmoid() -> Iterator[None]:
    """torch's sigmoid on the CPU, made wrong by a hundredth."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = torch.library.Library("aten", "IMPL")
        library.impl("sigmoid", lambda data: 1 / (1 + torch.exp(-data)) + 0.01, "CPU")
    yield
    library._destroy()  # type: ignore[no-untyped-call]


def together(work: Callable[[int], None]) -> list[BaseException]:
    """What work raised in threads that began it at one time."""
    raised: list[BaseException] = []
    gate = threading.Barrier(THREADS)

    def run(number: int) -> None:
        gate.wait()
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    threads = [
        threading.Thread(target=run, args=(number,), daemon=True) for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return raised


@pytest.mark.usefixtures("one_process", "restless")
def test_calls_of_several_threads_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(number: int) -> None:
        for size in SHAPES:
            data = torch.full((THREADS * size + number,), 0.5)
            ((data * size).tanh() + number).sum()

    with opscope.record(tmp_path / "run", check=True):
        assert not together(work)
    assert "no longer checking" not in capsys.readouterr().err
    run = opscope.open_run(tmp_path / "run")
    verdicts = run.processes[0].checked["verdicts"]
    assert set(verdicts) == {"agree"}
    assert verdicts["agree"] >= THREADS * len(SHAPES) * 4


@pytest.mark.usefixtures("one_process", "restless")
def test_a_wrong_kernel_is_named_and_not_what_another_thread_was_calling(tmp_path: Path) -> None:
    def work(number: int) -> None:
        for size in SHAPES:
            data = torch.full((THREADS * size + number,), 0.5)
            ((data * size).sigmoid() + number).sum()

    with wrong_sigmoid(), opscope.record(tmp_path / "run", check=True):
        assert not together(work)
    found = opscope.scan(opscope.open_run(tmp_path / "run")).findings
    assert {finding.op for finding in found} == {"aten::sigmoid.default"}


@pytest.mark.usefixtures("one_process", "restless")
def test_calls_of_several_threads_run_on_substitutes() -> None:
    substitution = Substitution((Rule(parse_pattern("aten::mul*"), "cpu"),))
    wrong: list[int] = []

    def work(number: int) -> None:
        with SubstituteMode(substitution):
            for size in SHAPES:
                data = torch.full((size,), float(number))
                if not torch.equal(data * 2, data + data):
                    wrong.append(number)

    raised = together(work)
    substitution.close()
    assert (raised, wrong, substitution.refused) == ([], [], {})
