# SPDX-License-Identifier: Apache-2.0
"""What --check costs at its default budget: whole trainings of a model of shapes.py, without opscope, under `opscope run`, and under
`opscope run --check`, which take turns of some steps.

    python benchmarks/check.py [--model gpt|gpt2|resnet|lstm] [--steps 200] [--turn 10] [--budget 20%]
    python benchmarks/check.py --journal [--pairs 30]

All seconds are in the ratios, from before the first step until the recording is closed: the first checks of every signature,
what sampling takes afterwards, and the checks of the end. With --journal instead: what journalling one operator adds to a step,
beside a plain write of the same inputs to a file in the same place.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from shapes import TRAININGS
from turns import Process, in_turns

import opscope


def whole_trainings(options: argparse.Namespace) -> None:
    """Ratios of all seconds of the watched trainings to those without, and the median of the turns after the first."""
    with tempfile.TemporaryDirectory() as folder:
        recorded, checked = Path(folder) / "recorded", Path(folder) / "checked"
        processes = [
            Process(options.model, options.threads),
            Process(options.model, options.threads, run=recorded, options=["--keep", "last:100"]),
            Process(options.model, options.threads, run=checked, options=["--check", "--budget", options.budget]),
        ]
        plain, *watched = in_turns(processes, steps=options.steps, turn=options.turn)
        facts = opscope.open_run(checked).processes[0].checked
    print(f"{options.model}, {options.steps} steps, {sum(plain):.1f} s, budget {options.budget}")
    for name, seconds in zip(["recorded", "checked"], watched, strict=True):
        ratios = [with_ / without for with_, without in zip(seconds[1:-1], plain[1:-1], strict=True)]
        print(
            f"{name:8} {sum(seconds) / sum(plain):.3f}; the first {options.turn} steps {seconds[0] - plain[0]:+.1f} s, later turns "
            f"{statistics.median(ratios):.3f} (median; quartiles {quartiles(ratios)}), its end {seconds[-1]:.1f} s"
        )
    print(
        f"{facts['checked']} of {facts['calls']} calls checked in {facts['seconds']:.1f} s, {facts['sampling']:.1f} of them sampling, "
        f"beside {facts['recording']:.1f} s of recording; {facts['signatures']} signatures"
    )


def quartiles(ratios: Sequence[float]) -> str:
    first, _, third = statistics.quantiles(ratios)
    return f"{first:.3f} to {third:.3f}"


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
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--turn", type=int, default=10, help="steps of one training before the next has its turn")
    parser.add_argument("--budget", default="20%")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--journal", action="store_true")
    parser.add_argument("--pairs", type=int, default=30, help="of --journal")
    options = parser.parse_args()
    if options.journal:
        torch.set_num_threads(options.threads)
        journal(options.pairs)
    elif options.steps < 4 * options.turn:
        parser.error("at least four turns are needed: more --steps, or a smaller --turn")
    else:
        whole_trainings(options)


if __name__ == "__main__":
    main()
