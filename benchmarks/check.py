# SPDX-License-Identifier: Apache-2.0
"""What --check costs at its default budget: whole trainings of a model of shapes.py, without opscope, under `opscope run`, and under
`opscope run --check`, in turns.

    python benchmarks/check.py [--model gpt|gpt2|resnet|lstm] [--pairs 3] [--steps 150] [--budget 20%]
    python benchmarks/check.py --journal [--pairs 30]

Each training is a process of its own, timed from before its first step until its recording is closed: the first checks of
every signature and what sampling takes afterwards are in the ratio. With --journal instead: what journalling one operator adds
to a step, beside a plain write of the same inputs to a file in the same place.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from shapes import TRAININGS

import opscope
from opscope.record.active import active


def training(model: str, steps: int) -> None:
    """Train, and print the seconds from before the first step until the recording, if there is one, is closed."""
    torch.manual_seed(0)
    trained = TRAININGS[model]()
    start = time.perf_counter()
    for _ in range(steps):
        trained.step()
    if active.session is not None:
        active.session.close()
    print(time.perf_counter() - start)


def in_own_process(words: Sequence[str], *options: str) -> dict[str, Any]:
    """Seconds of one training, and what was checked; words start it, options are those of `opscope run`, none for a training without it."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        before = [sys.executable, "-m", "opscope", "run", "-o", str(run), *options, "--"] if options else []
        done = subprocess.run([*before, *words], capture_output=True, text=True, check=True)
        checked = opscope.open_run(run).processes[0].checked if options else {}
    return {"seconds": float(done.stdout.splitlines()[-1]), "checked": checked}


def whole_runs(options: argparse.Namespace) -> None:
    ratios: list[tuple[float, float]] = []
    words = [sys.executable, __file__, "--one", "--model", options.model, "--steps", str(options.steps), "--threads", str(options.threads)]
    for _ in range(options.pairs):
        plain = in_own_process(words)
        recorded = in_own_process(words, "--keep", "last:100")
        checked = in_own_process(words, "--check", "--budget", options.budget)
        ratios.append((recorded["seconds"] / plain["seconds"], checked["seconds"] / plain["seconds"]))
        facts = checked["checked"]
        print(
            f"{options.model}, {options.steps} steps, {plain['seconds']:.1f} s; recorded {ratios[-1][0]:.3f}, checked {ratios[-1][1]:.3f}; "
            f"{facts['checked']} of {facts['calls']} calls in {facts['seconds']:.1f} s, {facts['signatures']} signatures",
            flush=True,
        )
    recorded, checked = (statistics.median(side) for side in zip(*ratios, strict=True))
    print(f"{options.model} budget={options.budget} pairs={options.pairs} median ratios: recorded {recorded:.3f}, checked {checked:.3f}")


def journal(pairs: int) -> None:
    """What the journal adds to a call, beside what writing the call's inputs to a file just before it adds."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)

    def calls(before: Callable[[], object] | None = None, count: int = 20) -> float:
        start = time.perf_counter()
        for _ in range(count):
            if before is not None:
                before()
            torch.mm(a, b)
        return (time.perf_counter() - start) / count

    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "inputs").open("wb", buffering=0) as file:

        def write() -> None:
            file.seek(0)
            for tensor in (a, b):
                file.write(memoryview(tensor.numpy()).cast("B"))

        added: list[tuple[float, float]] = []
        for round_ in range(pairs):
            with opscope.record(Path(folder) / f"plain{round_}"):
                calls()
                plain = calls()
                written = calls(write)
            with opscope.record(Path(folder) / f"run{round_}", journal="aten::mm"):
                calls()
                added.append((calls() - plain, written - plain))
    journalled, written = (statistics.median(side) for side in zip(*added, strict=True))
    print(f"aten::mm with {(a.nbytes + b.nbytes) / 2**20:.0f} MiB of inputs: the journal adds {journalled * 1e3:.2f} ms,")
    print(f"writing them to a file before the call {written * 1e3:.2f} ms; ratio {journalled / written:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=sorted(TRAININGS), default="gpt")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--budget", default="20%")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--journal", action="store_true")
    parser.add_argument("--one", action="store_true", help="one training, in this process")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.one:
        training(options.model, options.steps)
    elif options.journal:
        journal(max(options.pairs, 10))
    else:
        whole_runs(options)


if __name__ == "__main__":
    main()
