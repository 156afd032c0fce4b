# SPDX-License-Identifier: Apache-2.0
"""What the files of a graph's kernels say, for joining them with nodes: names first, headers and
samples of bytes when asked.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import xxhash

from opscope.errors import FormatError
from opscope.formats.mindspore.join import Facts, Kernel
from opscope.formats.mindspore.kernels import Execution
from opscope.formats.mindspore.layout import Place
from opscope.formats.npy import read_npy_header

_SAMPLE = 1 << 16
_ITERATIONS = 3  # as many are compared when kernels are joined with nodes


class Evidence:
    """What the files of a graph's kernels say, over a few iterations."""

    def __init__(self, runs: Iterable[tuple[Place, Execution]]) -> None:
        self._samples: dict[Path, bytes | None] = {}
        self._runs: dict[Kernel, list[tuple[Place, Execution]]] = defaultdict(list)
        for place, run in runs:
            if run.occurrence == 0 and len(self._runs[run.kernel]) < _ITERATIONS:
                self._runs[run.kernel].append((place, run))

    def facts(self) -> list[Facts]:
        """What the names of each kernel's files say."""
        return [_facts(kernel, runs) for kernel, runs in self._runs.items() if runs]

    def sizes(self, kernel: Kernel) -> dict[tuple[str, int], int]:
        """Numbers of elements of the files of a kernel, from the headers in one iteration."""
        place, run = self._runs[kernel][0]
        counts = {}
        for (io, _), file in run.files.items():
            count = _elements(place.path / file.file)
            if count is not None:
                counts[io, file.index] = count
        for (io, slot), row in run.statistics.items():
            if row.shape is not None and slot.isdigit():
                counts.setdefault((io, int(slot)), math.prod(row.shape))
        return counts

    def content(self, kernel: Kernel, io: str, number: int) -> bytes | None:
        """Size and ends of one file; two files of the same bytes give the same."""
        place, run = self._runs[kernel][0]
        file = run.files.get((io, str(number)))
        if file is None:
            return None
        path = place.path / file.file
        if path not in self._samples:
            self._samples[path] = _sample(path)
        return self._samples[path]


def _elements(path: Path) -> int | None:
    try:
        return math.prod(read_npy_header(path).shape)
    except FormatError:  # told when its values are asked for
        return None


def _sample(path: Path) -> bytes | None:
    try:
        header = read_npy_header(path)
        with path.open("rb") as stream:
            stream.seek(header.offset)
            head = stream.read(min(header.nbytes, _SAMPLE))
            stream.seek(header.offset + max(0, header.nbytes - _SAMPLE))
            tail = stream.read(_SAMPLE)
    except (FormatError, OSError):
        return None
    return xxhash.xxh3_64_digest(f"{header.dtype} {header.nbytes}".encode())[
        :2
    ] + xxhash.xxh3_128_digest(head + tail)


def _facts(kernel: Kernel, runs: list[tuple[Place, Execution]]) -> Facts:
    first = runs[0][1]
    dtypes = {(row.io, row.slot): row.dtype for row in first.statistics.values()}
    dtypes |= {(file.io, file.index): file.dtype for file in first.files.values()}
    spans = {}
    for place, run in runs:
        times = [file.time for file in run.files.values()] + [
            row.time for row in run.statistics.values()
        ]
        if times and min(times) > 0:
            spans[place.iteration] = (min(times), max(times))
    return Facts(kernel, dtypes, spans)
