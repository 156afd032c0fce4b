# SPDX-License-Identifier: Apache-2.0
"""Trainings that take turns, each in a process of its own: some steps of one, then of the next, so
that all meet the same machine.

    python benchmarks/turns.py MODEL THREADS

is such a process: it reads how many steps are asked, or `close`, from its input, and prints the
seconds they took. The clock by which opscope keeps its budget stands still while the others have
their turn.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from shapes import TRAININGS

from opscope.record.active import active

# asks for the end of the recording: the checks of held calls and what is still to be written
CLOSE = "close"


class Process:
    """A training of a model of shapes.py, under `opscope run` with these options, which writes to
    the folder run, or without opscope.
    """

    def __init__(
        self, model: str, threads: int, *, run: Path, options: Sequence[str] | None
    ) -> None:
        before = (
            []
            if options is None
            else ["-m", "opscope", "run", "-o", str(run), *options, "--", sys.executable]
        )
        words = [sys.executable, *before, __file__, model, str(threads)]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answer()

    def turn(self, asked: int | str) -> float:
        """Seconds of so many steps, or of the end of the recording."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{asked}\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        self._process.communicate()

    def _answer(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the training ended: {self._process.args}")
        return float(line)


def in_turns(processes: Sequence[Process], *, steps: int, turn: int) -> list[list[float]]:
    """Seconds of every turn, by process, the last being the end of the recording; who begins
    changes with every round.
    """
    seconds: list[list[float]] = [[] for _ in processes]
    for round_, asked in enumerate([*([turn] * (steps // turn)), CLOSE]):
        for place in range(len(processes)):
            which = (round_ + place) % len(processes)
            seconds[which].append(processes[which].turn(asked))
    for process in processes:
        process.end()
    return seconds


def asked_for() -> Iterator[str]:
    """What is asked of this process; its clock stands still while it waits."""
    clock, waited = time.perf_counter, 0.0
    time.perf_counter = lambda: clock() - waited
    while True:
        begun = clock()
        line = sys.stdin.readline()
        waited += clock() - begun
        if not line:
            return
        yield line.strip()


def train(model: str, threads: int) -> None:
    torch.set_num_threads(threads)
    training = TRAININGS[model]()
    print(0, flush=True)
    for asked in asked_for():
        begun = time.perf_counter()
        if asked != CLOSE:
            for _ in range(int(asked)):
                training.step()
        elif active.session is not None:
            active.session.close()
        print(time.perf_counter() - begun, flush=True)


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]))
