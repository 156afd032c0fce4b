# SPDX-License-Identifier: Apache-2.0
"""What --check costs at its default budget: a training step of the GPT of gpt.py with it and without opscope, in turns.

    python benchmarks/check.py [--pairs 30] [--warm 5] [--budget 20%]

The first steps, in which the first calls of every signature are checked, are timed apart: they cost what they cost, and the
budget counts them, so that sampling begins when the program has run long enough to pay for them.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from gpt import Training
from recording import pairs

import opscope


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--budget", default="20%")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    training = Training()
    for _ in range(3):
        training.step()
    with tempfile.TemporaryDirectory() as folder:
        with opscope.record(Path(folder) / "run", check=True, budget=options.budget) as recording:
            start = time.perf_counter()
            for _ in range(options.warm):
                training.step()
            warm = time.perf_counter() - start
            found = pairs(training, recording, options.pairs)
        process = opscope.open_run(recording.path).processes[0]
    ratio = statistics.median(b / a for a, b in found)
    without, with_ = (sum(side) for side in zip(*found, strict=True))
    print(f"budget={options.budget} threads={options.threads} pairs={options.pairs}")
    print(f"first {options.warm} steps, with first checks, {warm:.1f} s")
    print(f"then median ratio {ratio:.3f}, ratio of sums {with_ / without:.3f}")
    print(f"{process.checked}")


if __name__ == "__main__":
    main()
