# SPDX-License-Identifier: Apache-2.0
"""How fast one pass over two arrays is beside a plain read of the same bytes, and beside NumPy's
own way to three of its metrics.

PYTHONPATH=src python benchmarks/pair.py [--mib 256] [--repeat 9] [--dtypes float32,float16]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from opscope.kernels import compiled
from opscope.kernels.pair import pair
from opscope.narrow import as_type, numpy_type, widened

Task = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--mib",
        type=float,
        default=256,
        help="bytes of each side; larger than every cache by default",
    )
    parser.add_argument("--repeat", type=int, default=9, help="rounds; each runs every task once")
    parser.add_argument("--dtypes", default="float32,float16,bfloat16,float64,int32,complex64")
    given = parser.parse_args()
    if compiled.load() is None:
        raise SystemExit("the compiled kernels are missing: run scripts/build_native.sh")
    print(f"one thread, 2 x {given.mib:g} MiB, medians of {given.repeat} rounds")
    for name in given.dtypes.split(","):
        for words, share in (("nothing differs", 0.0), ("every element differs", 1.0)):
            report(
                f"{name}, {words}",
                measured(tasks(*sides(name, given.mib, share)), given.repeat),
                given.mib,
            )


def sides(name: str, mib: float, share: float) -> tuple[np.ndarray, np.ndarray]:
    dtype = numpy_type(name)
    count = int(mib * 2**20) // dtype.itemsize
    drawn = np.random.default_rng(0).standard_normal(1 << 20) * (1 if dtype.kind in "fcV" else 1000)
    golden = np.resize(as_type(drawn, dtype), count)
    return as_type(widened(golden) * (1 + 0.01 * share) + share, dtype), golden


def tasks(target: np.ndarray, golden: np.ndarray) -> dict[str, Task]:
    words = [side.view(np.uint64) for side in (target, golden)]
    return {
        "plain read": lambda: [int(np.bitwise_or.reduce(side)) for side in words],
        "opscope, all metrics": lambda: pair(target, golden),
        "NumPy, max abs and cosine and relative Euclidean": lambda: by_numpy(target, golden),
    }


def by_numpy(target: np.ndarray, golden: np.ndarray) -> tuple[float, float, float]:
    wide = np.complex128 if target.dtype.kind == "c" else np.float64
    t, g = widened(target).astype(wide), widened(golden).astype(wide)
    gap = np.abs(t - g)
    norms = float(np.linalg.norm(t)), float(np.linalg.norm(g))
    return (
        float(gap.max()),
        float(abs(np.vdot(t, g))) / (norms[0] * norms[1]),
        float(np.linalg.norm(gap)) / norms[1],
    )


def measured(every: dict[str, Task], repeat: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in every}
    for _ in range(repeat):
        for name, task in every.items():
            start = time.perf_counter()
            task()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in times.items()}


def report(title: str, times: dict[str, float], mib: float) -> None:
    print(f"\n{title}")
    base = times["plain read"]
    for name, taken in times.items():
        print(
            f"  {name:50} {taken * 1e3:8.1f} ms  {2 * mib / 1024 / taken:6.2f} GiB/s  "
            f"{taken / base:6.2f} of the plain read"
        )


if __name__ == "__main__":
    main()
