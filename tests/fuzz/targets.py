# SPDX-License-Identifier: Apache-2.0
"""Every parser of files that others wrote, as a function of bytes: it answers, or one error of one line says why not."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from opscope.errors import OpscopeError
from opscope.formats import accuracy_checker, debug_mode, msprobe, onnxruntime, opdebug, ptdbg
from opscope.formats.archives import keys_of, read_npz, read_safetensors
from opscope.formats.cann import dumpfile
from opscope.formats.cann.tensor import device, host, tensors, view
from opscope.formats.manifest import parse_manifest
from opscope.formats.mindspore.edges import Versions, wire
from opscope.formats.mindspore.ir import parse_ir
from opscope.formats.mindspore.pb import parse_pb
from opscope.formats.mindspore.statistic import parse_statistic, read_mapping
from opscope.formats.npy import read_npy
from opscope.formats.pt import read_pt
from opscope.formats.registry import Format
from opscope.formats.text_arrays import read_csv, read_txt
from opscope.run.arrow import encode_rows

CORPUS = Path(__file__).parent / "corpus"
_HOME = tempfile.TemporaryDirectory(prefix="opscope-fuzz-")


def _as_file(name: str, use: Callable[[Path], object]) -> Callable[[bytes], None]:
    path = Path(_HOME.name) / name

    def run(data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        use(path)

    return run


def _dump(path: Path) -> None:
    file = dumpfile.read(path)
    dumpfile.summary(path)
    for side in ("input", "output"):
        for index in range(len(tensors(file, side))):
            seen = view(file, side, index)
            host(device(file, side, index, seen), seen)


def _archive(read: Callable[[Path, str], object]) -> Callable[[Path], None]:
    def use(path: Path) -> None:
        for name in keys_of(path):
            read(path, name)

    return use


def _graph(data: bytes) -> None:
    graph = parse_ir(data.decode("utf-8", "replace"))
    wire(graph, graph.kernels, Versions())


def _run(kind: Format, *, above: int = 0) -> Callable[[Path], None]:
    def use(path: Path) -> None:
        run = kind.open(path.parents[above - 1] if above else path)
        for table in ("calls", "tensors", "stacks"):
            encode_rows(table, run.rows(table))  # type: ignore[attr-defined]

    return use


TARGETS: dict[str, Callable[[bytes], None]] = {
    "accuracy_checker": _as_file("checker/forward_info_0.json", _run(accuracy_checker.FORMAT, above=1)),
    "cann": _as_file("Add.add.1.2.3", _dump),
    "csv": _as_file("a.csv", read_csv),
    "debug_mode": _as_file("debug.txt", _run(debug_mode.FORMAT)),
    "ir": _graph,
    "manifest": lambda data: void(parse_manifest(data, "opscope.jsonl")),
    "mapping": _as_file("mapping.csv", lambda path: read_mapping(path, [])),
    "msprobe": _as_file("probe/dump.json", _run(msprobe.FORMAT, above=1)),
    "npy": _as_file("a.npy", read_npy),
    "npz": _as_file("a.npz", _archive(read_npz)),
    "onnxruntime": _as_file("ort.txt", _run(onnxruntime.FORMAT)),
    "opdebug": lambda data: void(opdebug.decode(data, "Opdebug")),
    "pb": lambda data: void(parse_pb(data)),
    "pt": _as_file("a.pt", read_pt),
    "ptdbg": lambda data: void(ptdbg.parse_pkl(data, "dump.pkl")),
    "safetensors": _as_file("a.safetensors", _archive(read_safetensors)),
    "statistic": lambda data: void(list(parse_statistic(data.decode("utf-8", "replace"), "statistic.csv", []))),
    "txt": _as_file("a.txt", read_txt),
}


def void(value: object) -> None:
    """The answer is of no interest."""
    del value


def attempt(name: str, data: bytes) -> None:
    """One input; AssertionError for an error of several lines, and any error that is not ours goes on."""
    refused = ""
    try:
        TARGETS[name](data)
    except OpscopeError as error:
        refused = str(error)
    assert "\n" not in refused, f"{name}: an error of several lines"
