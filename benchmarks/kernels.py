# SPDX-License-Identifier: Apache-2.0
"""How fast one pass is beside a plain read of the same bytes, memcpy and torch.sum: ratios, of
pairs taken one after the other.

PYTHONPATH=src python benchmarks/kernels.py [--mib 256] [--repeat 15] [--dtypes float32,float16]
[--masked]
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from opscope.kernels import compiled
from opscope.narrow import as_type, name_of, numpy_type

Task = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--mib",
        type=float,
        default=256,
        help="bytes read a pass; larger than every cache by default",
    )
    parser.add_argument("--repeat", type=int, default=15, help="rounds; each runs every task once")
    parser.add_argument(
        "--dtypes",
        default="float32,float16,bfloat16,float64,float8_e4m3fn,int64,int32,int8,bool,complex64",
    )
    parser.add_argument(
        "--huge", action="store_true", help="memory in pages of 2 MiB, which is read faster"
    )
    parser.add_argument(
        "--masked", action="store_true", help="half of the floats are -inf, as in attention scores"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    native = compiled.load()
    if native is None:
        raise SystemExit("the compiled kernels are missing: run scripts/build_native.sh")
    print(
        f"{processor()}, one thread, {given.mib:g} MiB, medians of {given.repeat} rounds; "
        "speeds are ratios to the plain read"
    )
    for name in given.dtypes.split(","):
        report(name, measure(tasks(native, sample(name, given)), given), given)


def processor() -> str:
    lines = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if Path("/proc/cpuinfo").exists()
        else []
    )
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        "unknown processor",
    )


def sample(name: str, given: argparse.Namespace) -> np.ndarray:
    dtype = numpy_type(name)
    drawn = np.random.default_rng(0).standard_normal(1 << 20) * (1 if dtype.kind in "fcV" else 50)
    if given.masked:
        drawn[::2] = -np.inf
    part = (drawn > 0) if name == "bool" else as_type(drawn, dtype)
    count = max(1, int(given.mib * 2**20) // dtype.itemsize)
    array = memory(count * dtype.itemsize, huge=given.huge).view(dtype)
    array[:] = np.resize(part, count)
    return array


def memory(size: int, *, huge: bool) -> np.ndarray:
    """Aligned to 64 bytes, as tensors are; a map lives as long as the array over it."""
    if not huge:
        return torch.empty(size, dtype=torch.uint8).numpy()
    pages = mmap.mmap(-1, size + 2**21)
    pages.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(pages, np.uint8)
    start = -whole.ctypes.data % 2**21
    return whole[start : start + size]


def tasks(native: object, array: np.ndarray) -> dict[str, Task]:
    """The plain read sums 64-bit words: NumPy's reduction of uint64 and torch's of int64, the
    faster of which is the measure.
    """
    words = array.view(np.uint8)[: array.nbytes // 8 * 8].view(np.int64)
    tensor, copy = torch.from_numpy(words), np.empty_like(array)
    number = compiled.NUMBERS[name_of(array.dtype)]
    found: dict[str, Task] = {
        "read (numpy)": words.view(np.uint64).sum,
        "read (torch)": tensor.sum,
        "memcpy": lambda: ctypes.memmove(copy.ctypes.data, array.ctypes.data, array.nbytes),
    }
    if array.dtype.name in ("float32", "float64", "int64", "complex64"):
        found["torch.sum"] = torch.from_numpy(array).sum
    for isa in native.isas():
        found[isa] = lambda isa=isa: compiled.statistics(native, array, number, isa=isa)
        found[isa + " no digest"] = lambda isa=isa: compiled.statistics(
            native, array, number, digest=False, isa=isa
        )
    return found


def measure(work: dict[str, Task], given: argparse.Namespace) -> dict[str, list[float]]:
    inner = max(1, int(16 / given.mib))
    times: dict[str, list[float]] = {name: [] for name in work}
    for round_number in range(given.repeat + 1):
        for name, task in work.items():
            start = time.thread_time()
            for _ in range(inner):
                task()
            if round_number:
                times[name].append((time.thread_time() - start) / inner)
    return times


def report(dtype: str, times: dict[str, list[float]], given: argparse.Namespace) -> None:
    read = [min(pair) for pair in zip(times["read (numpy)"], times["read (torch)"], strict=True)]
    print(f"\n{dtype}")
    for name, taken in times.items():
        ratio = np.median(np.divide(read, taken))
        speed = given.mib * 2**20 / np.median(taken) / 1e9
        line = f"  {name:20s} {ratio:5.2f}   {speed:6.1f} GB/s"
        if name + " no digest" in times:
            bare = times[name + " no digest"]
            line += f"   {np.median(np.divide(taken, bare)):.2f}x the time without digest"
        print(line)


if __name__ == "__main__":
    main()
