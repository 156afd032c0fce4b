# SPDX-License-Identifier: Apache-2.0
"""What --check costs at its default budget: whole trainings of a model of shapes.py, without
opscope, under `opscope run`, and under `opscope run --check`, several of each, which take turns of
some steps.

    python benchmarks/check.py [--model gpt|gpt2|resnet|lstm] [--steps 200] [--each 3] [--turn 5]
    [--budget 20%] python benchmarks/check.py --journal [--pairs 30]

All seconds are in the ratios, from before the first step until the recording is closed: the first
checks of every signature, what sampling takes afterwards, and the checks of the end. With --journal
instead: what journalling one operator adds to a call, beside a plain write of the same inputs to a
file in the same place.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from shapes import TRAININGS
from turns import Process, in_turns

import opscope


def whole_trainings(options: argparse.Namespace) -> None:
    """Ratios of all seconds of the watched trainings to those without opscope, and of the turns
    after the first.
    """
    kinds = {
        "plain": None,
        "recorded": ["--keep", "last:100"],
        "checked": ["--check", "--budget", options.budget],
    }
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            (kind, Path(folder) / f"{kind}{number}")
            for number in range(options.each)
            for kind in kinds
        ]
        processes = [
            Process(options.model, options.threads, run=run, options=kinds[kind])
            for kind, run in runs
        ]
        seconds = in_turns(processes, steps=options.steps, turn=options.turn)
        facts = opscope.open_run(Path(folder) / "checked0").processes[0].checked
    of_kind = {kind: seconds[place :: len(kinds)] for place, kind in enumerate(kinds)}
    plain = of_kind["plain"]
    whole = statistics.mean(map(sum, plain))
    print(
        f"{options.model}, {options.steps} steps, {whole:.1f} s "
        f"({between(sum(turns) for turns in plain)}), budget {options.budget}"
    )
    for kind in ("recorded", "checked"):
        watched = of_kind[kind]
        later = sum(sum(turns[1:-1]) for turns in watched) / sum(
            sum(turns[1:-1]) for turns in plain
        )
        first = statistics.mean(turns[0] for turns in watched) - statistics.mean(
            turns[0] for turns in plain
        )
        pairs = [
            one / other
            for turns, bare in zip(watched, plain, strict=True)
            for one, other in zip(turns[1:-1], bare[1:-1], strict=True)
        ]
        print(
            f"{kind:8} {statistics.mean(map(sum, watched)) / whole:.3f} "
            f"({between(sum(turns) / whole for turns in watched)}); "
            f"the first {options.turn} steps {first:+.1f} s, the others {later:.3f} "
            f"(median of turns {statistics.median(pairs):.3f}), its end {watched[0][-1]:.1f} s"
        )
    print(
        f"{facts['checked']} of {facts['calls']} calls checked in {facts['seconds']:.1f} s, "
        f"{facts['sampling']:.1f} of them sampling, "
        f"beside {facts['recording']:.1f} s of recording; {facts['signatures']} signatures"
    )


def between(figures: Iterable[float]) -> str:
    found = sorted(figures)
    return f"{found[0]:.2f} to {found[-1]:.2f}"


def journal(pairs: int, elements: int) -> None:
    """What the journal adds to a call that computes nothing, beside what writing its input to a
    file just before it adds.
    """
    x = torch.randn(elements)

    def calls(before: Callable[[], object] | None = None, count: int = 20) -> float:
        start = time.perf_counter()
        for _ in range(count):
            if before is not None:
                before()
            x.view(-1)
        return (time.perf_counter() - start) / count

    with (
        tempfile.TemporaryDirectory() as folder,
        (Path(folder) / "inputs").open("wb", buffering=0) as file,
    ):

        def write() -> None:
            file.seek(0)
            file.write(memoryview(x.numpy()).cast("B"))

        added: list[tuple[float, float]] = []
        for round_ in range(pairs):
            with opscope.record(Path(folder) / f"plain{round_}"):
                calls(write)
                plain = calls()
                written = calls(write)
            with opscope.record(Path(folder) / f"run{round_}", journal="aten::view"):
                calls()
                added.append((calls() - plain, written - plain))
    journalled, written = (statistics.median(side) for side in zip(*added, strict=True))
    ratio = statistics.median(one / other for one, other in added)
    print(f"aten::view of {x.nbytes / 2**20:.0f} MiB: the journal adds {journalled * 1e3:.2f} ms,")
    print(
        f"writing the input to a file before the call {written * 1e3:.2f} ms; median ratio "
        f"{ratio:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=sorted(TRAININGS), default="gpt")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument(
        "--each",
        type=int,
        default=3,
        help="processes of each kind: one and the same training differs by a tenth",
    )
    parser.add_argument(
        "--turn", type=int, default=5, help="steps of one training before the next has its turn"
    )
    parser.add_argument("--budget", default="20%")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--journal", action="store_true")
    parser.add_argument("--pairs", type=int, default=30, help="of --journal")
    options = parser.parse_args()
    if options.journal:
        torch.set_num_threads(options.threads)
        journal(options.pairs, 1 << 21)  # stays in the caches
        journal(options.pairs // 3, 1 << 24)
    elif options.steps < 4 * options.turn:
        parser.error("at least four turns are needed: more --steps, or a smaller --turn")
    else:
        whole_trainings(options)


if __name__ == "__main__":
    main()
