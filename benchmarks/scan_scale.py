# SPDX-License-Identifier: Apache-2.0
"""Scanning a run of many tensor rows for non-finite ones: seconds, whole process warm, page cache
warm.

    python benchmarks/scan_scale.py [--rows 10000000] [--batch 3200] [--directory DIR]

Writes a run with the store's own writer (one batch a step, as the recorder does), then measures,
best and median of five: opening and scanning three columns; the same question as `opscope query`
asks it, which puts them into a database first (two of it); and what nanoarrow alone needs to read
the file.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nanoarrow
import numpy as np
from nanoarrow.ipc import InputStream

from opscope.run.arrow import encode_rows
from opscope.run.database import sql
from opscope.run.schema import Tensor
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.reader import NativeRun
from opscope.run.store.writer import ProcessWriter


def rows_of_a_step(count: int, *, bad: bool) -> list[Tensor]:
    """Rows as a recorder writes them: every statistics column filled."""
    return [
        Tensor(
            process=0,
            index=number // 4,
            io="input" if number % 4 else "output",
            slot=str(number % 4),
            version=number,
            storage=number,
            offset=0,
            dtype="float32",
            shape=(8, 128, 256),
            stride=(32768, 256, 1),
            device="cpu",
            requires_grad=True,
            size=262144,
            nan=int(bad and number == 7),
            pos_inf=0,
            neg_inf=0,
            zero=3,
            neg=131072,
            pos=131069,
            near_limit=0,
            min=-4.5,
            max=4.25,
            mean=0.01,
            l2norm=512.0,
            digest=number * 0x9E3779B97F4A7C15 % 2**64,
            role="parameter" if number % 7 == 0 else None,
            tensor_name="blocks.3.attn.qkv.weight" if number % 7 == 0 else None,
        )
        for number in range(count)
    ]


def write_run(directory: Path, rows: int, batch: int) -> Path:
    """A run of that many tensor rows; one row in a hundred batches is not finite."""
    run = create_run(directory / "run", command=sys.argv)
    writer = ProcessWriter(run, process_facts(), keep=None)
    clean, bad = (encode_rows("tensors", rows_of_a_step(batch, bad=bad)) for bad in (False, True))
    start = time.perf_counter()
    for step in range(-(-rows // batch)):
        writer.append("tensors", bad if step % 100 == 0 else clean, step=step)
        writer.end_step(step)
    writer.close(0)
    seal_run(run)
    size = (writer.directory / "tensors.arrow").stat().st_size
    print(
        f"written  {rows} rows, {size / 1e9:.2f} GB, {size / rows:.0f} bytes a row, "
        f"{time.perf_counter() - start:.2f} s"
    )
    return run


def scan(path: Path) -> int:
    """Rows with a NaN or an infinity, by the projecting reader."""
    found = 0
    for batch in NativeRun(path).columns("tensors", ("nan", "pos_inf", "neg_inf")):
        found += int(np.count_nonzero(sum(np.ma.filled(batch[name], 0) for name in batch)))
    return found


def scan_sql(path: Path) -> int:
    """The same question to SQLite."""
    query = "SELECT count(*) AS found FROM tensors WHERE nan + pos_inf + neg_inf > 0"
    return int(next(sql(NativeRun(path), query))["found"])


def read_everything(path: Path) -> int:
    """What nanoarrow needs to read the table."""
    file = next((path / "processes").glob("p-*/tensors.arrow"))
    with nanoarrow.c_array_stream(InputStream.from_path(file)) as stream:
        return sum(batch.length for batch in stream)


def measure(name: str, question: Callable[[Path], int], path: Path) -> None:
    """Print best and median of five."""
    seconds = []
    answer = 0
    for _ in range(5):
        start = time.perf_counter()
        answer = question(path)
        seconds.append(time.perf_counter() - start)
    print(
        f"{name:28s} {min(seconds):.3f} s best  {statistics.median(seconds):.3f} s median  -> "
        f"{answer}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--batch", type=int, default=3200)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        path = write_run(Path(directory), options.rows, options.batch)
        measure("scan, three columns", scan, path)
        measure("the same in SQL", scan_sql, path)
        measure("nanoarrow reads all of it", read_everything, path)


if __name__ == "__main__":
    main()
