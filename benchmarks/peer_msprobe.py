# SPDX-License-Identifier: Apache-2.0
"""What msprobe costs on the step of benchmarks/gpt.py or of a tiny MLP; run it with an interpreter
that has mindstudio-probe and torch.

    PEER/bin/python benchmarks/peer_msprobe.py statistics L1 [--steps 5] [--model gpt|tiny]

Prints one JSON line: medians without and with, the median ratio of neighbouring steps, calls seen
and bytes a step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from gpt import Training
from shapes import Tiny


def debugger(folder: Path, task: str, level: str) -> Any:
    from msprobe.pytorch import PrecisionDebugger

    choice = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
    config = {
        "task": task,
        "dump_path": str(folder / "dump"),
        "rank": [],
        "step": [],
        "level": level,
        "async_dump": False,
        task: choice,
    }
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return PrecisionDebugger(config_path=str(path))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=["statistics", "tensor"])
    parser.add_argument("level", choices=["L1", "mix"])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--model", choices=["gpt", "tiny"], default="gpt")
    options = parser.parse_args()
    torch.set_num_threads(2)
    training = Training() if options.model == "gpt" else Tiny()
    for _ in range(3):
        training.step()
    pairs = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        watcher = debugger(folder, options.task, options.level)
        for _ in range(options.steps):
            start = time.perf_counter()
            training.step()
            without = time.perf_counter() - start
            watcher.start(model=training.model)
            start = time.perf_counter()
            training.step()
            watcher.stop()
            watcher.step()
            pairs.append((without, time.perf_counter() - start))
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        calls = sum(len(json.loads(path.read_text())["data"]) for path in folder.rglob("dump.json"))
    row = {
        "task": options.task,
        "level": options.level,
        "without_ms": statistics.median(a for a, _ in pairs) * 1e3,
        "with_ms": statistics.median(b for _, b in pairs) * 1e3,
        "ratio": statistics.median(b / a for a, b in pairs),
        "calls": calls / options.steps,
        "mb_a_step": size / options.steps / 1e6,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
