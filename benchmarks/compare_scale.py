# SPDX-License-Identifier: Apache-2.0
"""Comparing runs of many rows: processor seconds and memory of a whole process, for each kind of
difference.

    python benchmarks/compare_scale.py [--rows 1000000] [--directory DIR]

Writes two runs with the store's own writer: calls in steps of a thousand, four tensors each,
statistics without values. Then measures whole processes of `opscope compare`, the best of three
each: two equal runs, one with rounding noise and no digests, one with digests of which every output
differs, one with a call inserted in every step, one with one wrong call in the middle. Then two
runs of so
many calls, three tensors each: equal, and such that every row differs. Seconds are of the
processor, which other work does not lengthen.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from installed import installed
from large_runs import Form, write_large

from opscope.run.arrow import encode_rows
from opscope.run.schema import Call, Tensor
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.writer import ProcessWriter

CALLS = 1000  # of a step
ARGUMENTS = '{"args": [{"tensor": "0"}, {"tensor": "1"}, {"tensor": "2"}], "kwargs": {}}'


@dataclass(frozen=True)
class Kind:
    """How a run differs from the plain one: relative error of every output, digests, a call more in
    each step, one wrong call.
    """

    noise: float = 0.0
    digest: bool = True
    inserted: bool = False
    wrong: bool = False


def step_rows(step: int, kind: Kind, *, wrong: bool) -> tuple[list[Call], list[Tensor]]:
    """Calls of one step and their tensors: a chain through fifty modules."""
    calls, tensors = [], []
    first = step * (CALLS + 1)
    for place in range(CALLS + kind.inserted):
        extra = kind.inserted and place == CALLS // 2
        real = place - (kind.inserted and place > CALLS // 2)
        index, module = first + place, f"blocks.{real // 20}"
        op = (
            "aten::neg.default"
            if extra
            else ("aten::mm.default", "aten::gelu.default", "aten::add.Tensor")[real % 3]
        )
        calls.append(
            Call(
                process=0,
                rank=0,
                step=step,
                index=index,
                level="operator",
                phase="forward",
                op=op,
                module=module,
                name=f"{module}:{op}#{place}",
                source="/home/me/train.py:42",
                args=ARGUMENTS,
            )
        )
        content = 1.0 + (step * 31 + real) % 997 / 997
        off = 0.1 if wrong and place == CALLS // 2 else kind.noise
        for io, slot, number in (
            ("input", "0", 0),
            ("input", "1", 1),
            ("input", "2", 2),
            ("output", "0", 3),
        ):
            version = (
                index if number == 0 else -2 - real // 20 if number < 3 else index + 1
            ) % 2**40
            at = content * (1 + number / 10) * (1 + (off if number == 3 else 0.0))
            tensors.append(
                Tensor(
                    process=0,
                    index=index,
                    io=io,
                    slot=slot,
                    version=version,
                    storage=version,
                    offset=0,
                    dtype="float32",
                    shape=(8, 128, 256),
                    stride=(32768, 256, 1),
                    device="cpu",
                    size=262144,
                    nan=0,
                    pos_inf=0,
                    neg_inf=0,
                    zero=3,
                    neg=131072,
                    pos=131069,
                    near_limit=0,
                    min=-4 * at,
                    max=4.25 * at,
                    mean=0.01 * at,
                    l2norm=512.0 * at,
                    digest=hash((step, real, number, off if number == 3 else 0.0)) % 2**64
                    if kind.digest
                    else None,
                )
            )
    return calls, tensors


def write_run(directory: Path, name: str, rows: int, kind: Kind) -> Path:
    """A run of about that many tensor rows."""
    run = create_run(directory / name, command=sys.argv)
    writer = ProcessWriter(run, process_facts(), keep=None)
    steps = rows // (4 * CALLS)
    for step in range(steps):
        calls, tensors = step_rows(step, kind, wrong=kind.wrong and step == steps // 2)
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
        golden = write_run(directory, "golden", options.rows, Kind())
        plain = write_run(directory, "plain", options.rows, Kind(digest=False))
        targets = {
            "equal runs": (golden, golden),
            "statistics only, rounding noise": (
                write_run(directory, "noise", options.rows, Kind(noise=1e-7, digest=False)),
                plain,
            ),
            "digests, every output differs": (
                write_run(directory, "other", options.rows, Kind(noise=1e-7)),
                golden,
            ),
            "one wrong call": (
                write_run(directory, "wrong", options.rows, Kind(wrong=True)),
                golden,
            ),
            "a call inserted in each step": (
                write_run(directory, "inserted", options.rows, Kind(inserted=True)),
                golden,
            ),
        }
        for name, form in (
            ("as many calls, all rows equal", Form()),
            ("as many calls, all rows differ", Form(off=0.3)),
        ):
            one, two = (
                write_large(directory / f"{name} {side}", options.rows, chosen)
                for side, chosen in (("a", form), ("b", Form()))
            )
            targets[name] = one, two
        for name, (target, other) in targets.items():
            seconds, peak, said = min(measured(target, other) for _ in range(3))
            print(f"{name:34} {seconds:6.2f} s  {peak:6.0f} MiB  {said}")


def measured(target: Path, golden: Path) -> tuple[float, float, str]:
    """Processor seconds and peak memory in MiB of one whole process, and the first line of what it
    prints.
    """
    command = [sys.executable, "-m", "opscope", "compare", str(target), str(golden)]
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(command, stdout=printed, env=installed())
        _, _, used = os.wait4(process.pid, 0)
        seconds = used.ru_utime + used.ru_stime
        process.returncode = 0
        printed.seek(0)
        return seconds, used.ru_maxrss / 1024, printed.readline().strip()


if __name__ == "__main__":
    main()
