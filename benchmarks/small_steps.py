# SPDX-License-Identifier: Apache-2.0
"""What recording costs a call where the calls themselves cost nothing: a step of a tiny MLP.

    python benchmarks/small_steps.py [--turns 30] [--steps 200] [--values anomaly] [--levels
    operator,module]

Bare steps, steps under a dispatch mode that only makes the call, and recorded steps take turns in
one process. Medians of the turns, by the clock and by the CPU time of all threads, the writer's
too; what the first step of a recording costs beside a bare one. msprobe is timed by
benchmarks/peer_msprobe.py --model tiny, in an environment of its own.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from shapes import Tiny
from torch.utils._python_dispatch import TorchDispatchMode

import opscope

Turns = dict[str, list[tuple[float, float]]]


class Nothing(TorchDispatchMode):
    """Makes the call and counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def timed(step: Callable[[], None], steps: int) -> tuple[float, float]:
    """Seconds of a step by the clock, and of all threads together."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return (time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps


def in_turns(training: Tiny, recording: opscope.record, *, count: int, steps: int) -> Turns:
    found: Turns = {"bare": [], "nothing": [], "opscope": []}
    for _ in range(count):
        for name, mode in (("bare", nullcontext()), ("nothing", Nothing())):
            with mode:
                training.step()
                found[name].append(timed(training.step, steps))
        recording.start()
        training.step()
        found["opscope"].append(timed(training.step, steps))
        recording.stop()
    return found


def calls_of(training: Tiny) -> int:
    with Nothing() as counting:
        training.step()
    return counting.calls


def table(found: Turns, calls: int) -> None:
    for place, clock in enumerate(("clock", "CPU")):
        seconds = {
            name: statistics.median(pair[place] for pair in pairs) for name, pairs in found.items()
        }
        for name, value in seconds.items():
            above = [(value - seconds[base]) / calls * 1e6 for base in ("bare", "nothing")]
            words = (
                f"{clock:5}  {name:8} {value * 1e3:7.3f} ms a step {value / seconds['bare']:6.2f}x"
            )
            print(f"{words}   us a call above bare {above[0]:6.1f}, nothing {above[1]:6.1f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--values", default="anomaly")
    parser.add_argument("--levels", default="operator,module")
    options = parser.parse_args()
    torch.set_num_threads(1)
    training = Tiny()
    training.step()
    calls = calls_of(training)
    bare = timed(training.step, 20)
    with tempfile.TemporaryDirectory() as folder:
        run = opscope.record(Path(folder) / "run", values=options.values, levels=options.levels)
        with run as recording:
            first = timed(training.step, 1)
            recording.stop()
            found = in_turns(training, recording, count=options.turns, steps=options.steps)
    print(
        f"values={options.values} levels={options.levels}: {calls} calls a step, "
        f"{options.turns} turns of {options.steps} steps"
    )
    table(found, calls)
    more = [(a - b) * 1e3 for a, b in zip(first, bare, strict=True)]
    print(f"first recorded step {more[0]:.1f} ms above a bare one, {more[1]:.1f} ms of CPU time")


if __name__ == "__main__":
    main()
