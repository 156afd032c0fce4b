# SPDX-License-Identifier: Apache-2.0
"""What converting CANN dump files costs against copying them, and how long a large dump takes to
list its calls.

    python benchmarks/converting.py [--megabytes 512] [--files 100000] [--directory DIR]

Whole processes, medians of five, `cp -r` of the same directory alternated with each conversion,
page cache warm. The ratio is bytes read a second over those that cp copies; the issue asks for 0.5,
and for less than 3 s to list 100,000 files.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from opscope.formats.cann import dtypes, dumpfile
from opscope.formats.cann.message import DumpData, Shape, TensorEntry
from opscope.formats.layouts import from_host

ROUNDS = 5


class Case(msgspec.Struct, frozen=True):
    """One directory: shape on the host, element type, layout on the device, what the conversion is
    asked for.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    layout: str = "ND"
    options: tuple[str, ...] = ()

    def payload(self) -> np.ndarray[Any, Any]:
        """Elements as the device has them."""
        host = np.random.default_rng(0).standard_normal(self.shape).astype(self.dtype)
        return host if self.layout == "ND" else from_host(host, "NCHW", self.layout)


NCHW = ("--layout", "NCHW")
CASES = (
    Case("128 KB files", (128, 256)),
    Case("128 KB files, NC1HWC0 -> NCHW", (4, 16, 32, 32), "float16", "NC1HWC0", NCHW),
    Case("128 KB files, float32 NC1HWC0 -> NCHW", (2, 16, 32, 32), "float32", "NC1HWC0", NCHW),
    Case("4 MB files, NC1HWC0 -> NCHW", (8, 64, 64, 64), "float16", "NC1HWC0", NCHW),
    Case("64 MB files", (4096, 4096)),
)


def entry_for(
    values: np.ndarray[Any, Any],
    kind: dtypes.ElementType,
    *,
    layout: int = 2,
    original: tuple[int, ...] | None = None,
) -> TensorEntry:
    """Header entry of device elements, as the device's own writer makes it; layout is a format
    number (2: ND).
    """
    shape = Shape(dim=values.shape)
    return TensorEntry(
        data_type=kind.proto,
        format=layout,
        shape=shape,
        original_shape=shape if original is None else Shape(dim=original),
        size=kind.nbytes(values.size),
    )


def write_dumps(case: Case, directory: Path, nbytes: int) -> None:
    """As many dump files as hold that many bytes."""
    values = case.payload()
    entry = entry_for(
        values,
        dtypes.BY_NAME[case.dtype],
        layout=dtypes.FORMAT_NUMBERS[case.layout],
        original=case.shape,
    )
    directory.mkdir()
    for number in range(max(1, nbytes // values.nbytes)):
        header = DumpData(
            version="2.0",
            dump_time=1_600_000_000_000_000 + number,
            op_name=f"Default/net/Add-op{number}",
            output=(entry,),
        )
        dumpfile.write(
            directory
            / f"Add.Default_net_Add-op{number}.{number}.7.{1_600_000_000_000_000 + number}",
            header,
            [values],
        )


def timed(command: list[str], target: Path) -> float:
    """Seconds of a process that makes the target, which is then taken away."""
    start = time.perf_counter()
    subprocess.run([*command, str(target)], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    shutil.rmtree(target)
    return seconds


def measure(case: Case, home: Path, nbytes: int) -> str:
    """One line of the table."""
    source = home / "dump"
    write_dumps(case, source, nbytes)
    convert = [sys.executable, "-m", "opscope", "convert", str(source), *case.options, "-o"]
    pairs = [
        (timed(["cp", "-r", str(source)], home / "copy"), timed(convert, home / "converted"))
        for _ in range(ROUNDS)
    ]
    shutil.rmtree(source)
    copied, converted = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(copy / other for copy, other in pairs)
    return (
        f"{case.name:40} cp {copied:6.2f} s   convert {converted:6.2f} s   "
        f"{nbytes / converted / 1e6:6.0f} MB/s   ratio {ratio:.2f}"
    )


def listing(home: Path, files: int, write: Callable[[Path, int], None]) -> str:
    """Seconds in which a process opens a directory of many small files and knows its calls."""
    source = home / "many"
    source.mkdir()
    for number in range(files):
        write(source, number)
    program = f"import opscope; print(len(opscope.open_run({str(source)!r}).rows('calls')))"
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        answer = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True
        ).stdout
        seconds.append(time.perf_counter() - start)
    shutil.rmtree(source)
    return f"{statistics.median(seconds):6.2f} s   {answer.strip()} calls of {files} files"


def small_dump(directory: Path, number: int) -> None:
    """A CANN file of one float."""
    values = np.zeros(1, np.float32)
    header = DumpData(
        version="2.0",
        dump_time=number,
        op_name=f"Default/net/Add-op{number}",
        output=(entry_for(values, dtypes.BY_NAME["float32"]),),
    )
    dumpfile.write(
        directory / f"Add.Default_net_Add-op{number}.{number}.7.{number}", header, [values]
    )


def small_npy(directory: Path, number: int) -> None:
    """An .npy of one float, named as MindSpore names a kernel's output."""
    np.save(
        directory / f"Add.Default_net_Add-op{number}.0.0.{number}.output.0.DefaultFormat.npy",
        np.zeros(1, np.float32),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        home = Path(name)
        for case in CASES:
            print(measure(case, home, options.megabytes << 20))
        print(f"{'listing CANN files':40} {listing(home, options.files, small_dump)}")
        print(f"{'listing .npy files':40} {listing(home, options.files, small_npy)}")


if __name__ == "__main__":
    main()
