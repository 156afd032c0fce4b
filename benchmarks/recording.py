# SPDX-License-Identifier: Apache-2.0
"""What recording costs: one training step with and without it, alternated in one process.

    python benchmarks/recording.py [--pairs 30] [--values anomaly|full] [--threads 2]

Prints medians and the median of the ratios of neighbouring steps. The peers are timed by
benchmarks/peers.py.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import torch
from gpt import Training

import opscope


def timed(training: Training) -> float:
    start = time.perf_counter()
    training.step()
    return time.perf_counter() - start


def pairs(training: Training, recording: opscope.record, count: int) -> list[tuple[float, float]]:
    """Seconds of neighbouring steps (without, with); what start() and stop() cost lies outside."""
    found = []
    for _ in range(count):
        recording.stop()
        without = timed(training)
        recording.start()
        found.append((without, timed(training)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--values", default="anomaly")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    training = Training()
    for _ in range(3):
        training.step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        with opscope.record(Path(folder) / "run", values=options.values) as recording:
            training.step()
            found = pairs(training, recording, options.pairs)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        run = opscope.open_run(Path(folder) / "run")
        steps = options.pairs + 1
        calls = sum(len(batch["index"]) for batch in run.columns("calls", ["index"]))
    without, with_ = (statistics.median(side) for side in zip(*found, strict=True))
    ratio = statistics.median(b / a for a, b in found)
    print(f"values={options.values} threads={options.threads} pairs={options.pairs}")
    print(
        f"without {without * 1e3:.1f} ms   with {with_ * 1e3:.1f} ms   ratio {ratio:.3f}   "
        f"calls a step {calls / steps:.0f}"
    )
    print(
        f"disk {size / steps / 1e6:.2f} MB a step   peak memory +{(after - before) / 1024:.0f} MiB"
    )


if __name__ == "__main__":
    main()
