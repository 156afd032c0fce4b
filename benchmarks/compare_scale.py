# SPDX-License-Identifier: Apache-2.0
"""Comparing runs of many rows: seconds and memory of a whole process, for each kind of difference.

    python benchmarks/compare_scale.py [--rows 1000000] [--directory DIR]

Writes two runs with the store's own writer: calls in steps of a thousand, four tensors each, statistics without values. Then
measures, in a process of its own each: two equal runs, one with rounding noise and no digests, one with a call inserted in every step
and one perturbed call.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from opscope.run.arrow import encode_rows
from opscope.run.schema import Call, Tensor
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.writer import ProcessWriter

CALLS = 1000  # of a step
ARGUMENTS = '{"args": [{"tensor": "0"}, {"tensor": "1"}, {"tensor": "2"}], "kwargs": {}}'
ASK = """
import json, resource, sys, time
start = time.perf_counter()
import opscope
document = opscope.compare(sys.argv[1], sys.argv[2]).document
print(json.dumps({"seconds": time.perf_counter() - start, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                  "calls": document.summary["calls"], "findings": len(document.findings)}))
"""


def step_rows(step: int, *, noise: float, digest: bool, inserted: bool) -> tuple[list[Call], list[Tensor]]:
    """Calls of one step and their tensors: a chain through fifty modules."""
    calls, tensors = [], []
    first = step * (CALLS + 1)
    for place in range(CALLS + inserted):
        extra = inserted and place == CALLS // 2
        real = place - (inserted and place > CALLS // 2)
        index, module = first + place, f"blocks.{real // 20}"
        op = "aten::neg.default" if extra else ("aten::mm.default", "aten::gelu.default", "aten::add.Tensor")[real % 3]
        calls.append(
            Call(process=0, rank=0, step=step, index=index, level="operator", phase="forward", op=op, module=module,
                 name=f"{module}:{op}#{place}", source="/home/me/train.py:42", args=ARGUMENTS)
        )  # fmt: skip
        content = 1.0 + (step * 31 + real) % 997 / 997
        for io, slot, number in (("input", "0", 0), ("input", "1", 1), ("input", "2", 2), ("output", "0", 3)):
            version = (index if number == 0 else -2 - real // 20 if number < 3 else index + 1) % 2**40
            at = content * (1 + number / 10) * (1 + (noise if number == 3 else 0.0))
            tensors.append(
                Tensor(process=0, index=index, io=io, slot=slot, version=version, storage=version, offset=0, dtype="float32",
                       shape=(8, 128, 256), stride=(32768, 256, 1), device="cpu", size=262144, nan=0, pos_inf=0, neg_inf=0, zero=3,
                       neg=131072, pos=131069, near_limit=0, min=-4 * at, max=4.25 * at, mean=0.01 * at, l2norm=512.0 * at,
                       digest=hash((step, real, number, noise)) % 2**64 if digest else None)
            )  # fmt: skip
    return calls, tensors


def write_run(directory: Path, name: str, rows: int, *, noise: float = 0.0, digest: bool = True, inserted: bool = False) -> Path:
    """A run of about that many tensor rows."""
    run = create_run(directory / name, command=sys.argv)
    writer = ProcessWriter(run, process_facts(), keep=None)
    for step in range(rows // (4 * CALLS)):
        calls, tensors = step_rows(step, noise=noise, digest=digest, inserted=inserted)
        writer.append("calls", encode_rows("calls", calls), step=step)
        writer.append("tensors", encode_rows("tensors", tensors), step=step)
        writer.end_step(step)
    writer.close(0)
    seal_run(run)
    return run


def main() -> None:
    """Write the runs, measure, print one line for each comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.directory or Path(scratch)
        golden = write_run(directory, "golden", options.rows)
        plain = write_run(directory, "plain", options.rows, digest=False)
        targets = {
            "equal runs": (golden, golden),
            "statistics only, rounding noise": (write_run(directory, "noise", options.rows, noise=1e-7, digest=False), plain),
            "a call inserted in each step": (write_run(directory, "inserted", options.rows, inserted=True), golden),
        }
        for name, (target, other) in targets.items():
            best = min((measured(target, other) for _ in range(3)), key=lambda found: found["seconds"])
            calls = best["calls"]
            print(f"{name:34} {best['seconds']:6.2f} s  {best['peak']:6.0f} MiB  {calls['target']} calls, {calls['matched']} matched")


def measured(target: Path, golden: Path) -> dict:
    """Seconds and peak memory of one comparison in a process of its own."""
    done = subprocess.run([sys.executable, "-c", ASK, str(target), str(golden)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
