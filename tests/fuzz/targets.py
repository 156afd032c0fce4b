# SPDX-License-Identifier: Apache-2.0
"""Every parser of files that others wrote, as a function of bytes: it answers, or one error of one
line says why not.

A parser of one file gets the bytes as that file. A reader of a folder gets them as several files,
each after a line `==> NAME <==`, so that a changed byte may also change which files there are.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from opscope.ascend import codes, objects
from opscope.ascend.analysis import analyse_all
from opscope.ascend.explain import document
from opscope.ascend.find import Collection, collect
from opscope.ascend.log import read_logs, read_text
from opscope.ascend.unpacked import unpacked
from opscope.compare.pair.mapping_text import read_text as read_names
from opscope.errors import OpscopeError
from opscope.formats import (
    accuracy_checker,
    arrays,
    debug_mode,
    msprobe,
    native,
    onnxruntime,
    opdebug,
    ptdbg,
    tfdbg,
)
from opscope.formats.archives import keys_of, read_npz, read_safetensors
from opscope.formats.cann import batch, compare, corefile, detection, dumpfile, fusion, names
from opscope.formats.cann.tensor import device, host, tensors, view
from opscope.formats.manifest import parse_manifest
from opscope.formats.mindspore import FORMAT as MINDSPORE
from opscope.formats.mindspore.edges import Versions, wire
from opscope.formats.mindspore.ir import parse_ir
from opscope.formats.mindspore.metadata import (
    read_arguments,
    read_order,
    read_settings,
)
from opscope.formats.mindspore.names import (
    parse_arguments_name,
    parse_overflow_name,
    parse_raw_name,
    parse_tensor_name,
)
from opscope.formats.mindspore.pb import parse_pb
from opscope.formats.mindspore.statistic import parse_statistic, read_mapping
from opscope.formats.msprobe.names import parse_name
from opscope.formats.npy import npy_dtype, read_npy, read_npy_header
from opscope.formats.pt import read_pt
from opscope.formats.registry import Format, describe
from opscope.formats.settings.kinds import BUILTIN, Request, find_kind, kind_of_file, read_purpose
from opscope.formats.settings.parse import parse_settings
from opscope.formats.settings.recording import recording_of
from opscope.formats.text_arrays import read_csv, read_txt
from opscope.repro.arguments import parse_arguments, random_states
from opscope.run.arrow import encode_rows
from opscope.run.protocol import Run
from opscope.run.query import calls, columns
from opscope.run.schema import TABLES, Tensor

CORPUS = Path(__file__).parent / "corpus"
_HOME = tempfile.TemporaryDirectory(prefix="opscope-fuzz-")
_FILE = re.compile(rb"(?:^|\n)==> ([^\n]{1,200}) <==\n")
_VALUES = 4  # tensors of a run whose values are read


def _as_file(name: str, use: Callable[[Path], object]) -> Callable[[bytes], None]:
    path = Path(_HOME.name) / name

    def run(data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        use(path)

    return run


def _as_folder(name: str, use: Callable[[Path], object]) -> Callable[[bytes], None]:
    """A folder of the files that the bytes hold; a name that leads out of it is made one that does
    not.
    """
    folder = Path(_HOME.name) / name

    def run(data: bytes) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        _, *pieces = _FILE.split(data)
        for word, content in zip(pieces[::2], pieces[1::2], strict=True):
            parts = [
                part
                for part in word.decode("utf-8", "replace").replace("\0", "").split("/")
                if part not in ("", ".", "..")
            ]
            path = folder.joinpath(*(part[:120] for part in parts or ["file"]))
            if not any(above.is_file() for above in path.parents) and not path.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        folder.mkdir(exist_ok=True)
        use(folder)

    return run


def _as_text(*uses: Callable[[str], object]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        for use in uses:
            use(data.decode("utf-8", "replace"))

    return run


def _dump(path: Path) -> None:
    file = dumpfile.read(path)
    dumpfile.summary(path)
    for side in ("input", "output"):
        for index in range(len(tensors(file, side))):
            seen = view(file, side, index)
            host(device(file, side, index, seen), seen)
            compare.read_side(path, side, index)


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
        place = path.parents[above - 1] if above else path
        if not kind.detect(place):
            describe(place)
        run = kind.open(place)
        list(islice(calls(run), 100))
        if hasattr(run, "rows"):
            for table in ("calls", "tensors", "stacks"):
                encode_rows(table, run.rows(table))
            for row in [row for row in run.rows("tensors") if row.value is not None][:_VALUES]:
                _value(run, row)
        else:
            for table in TABLES:
                list(columns(run, table, list(TABLES[table])))

    return use


def _value(run: Run, row: Tensor) -> None:
    with suppress(OpscopeError):  # the next one may be sound
        run.value(row)


def _collection(folder: Path) -> None:
    """A collection of an AI Core error, archives in it unpacked."""
    with unpacked([folder]) as archives:
        found = collect([folder, *archives.folders.values()])
        reader = read_logs(found.logs, named=archives.named)
        document(
            analyse_all(reader, found),
            collection=found,
            read=len(found.logs),
            codes=reader.codes,
            runs=(str(folder),),
        )


def _log(data: bytes) -> None:
    reader = read_text(data, "plog-1.log")
    found = Collection()
    document(
        analyse_all(reader, found),
        collection=found,
        read=1,
        codes=reader.codes,
        runs=("plog-1.log",),
    )


def _object(path: Path) -> None:
    if path.read_bytes()[:6] == b"\x7fELF\x02\x01" and corefile.is_corefile(path.read_bytes()[:64]):
        corefile.read(path)
    objects.locate(4, objects=[path], functions=["kernel", "add"], beside=[])


def _beside(folder: Path) -> None:
    objects.locate(
        0x10,
        objects=[],
        functions=["kernel"],
        beside=[path for path in sorted(folder.rglob("*")) if path.is_file()],
    )


def _npy(path: Path) -> None:
    npy_dtype(read_npy_header(path), path)
    read_npy(path)


def _settings(text: str) -> None:
    with suppress(OpscopeError):
        read_purpose(text)
    document, _ = parse_settings(text)
    for name in BUILTIN:
        verify = find_kind(name).verify
        if verify is not None:
            verify(document, Request())
    kind_of_file(text)
    recording_of(document, {})


def _options(text: str) -> None:
    kind = find_kind("atc")
    assert kind.verify is not None
    kind.verify(text, Request())
    kind_of_file(text)


def _tree(folder: Path) -> None:
    """A CANN dump, as the commands that compare two of them read it too."""
    _run(detection.FORMAT)(folder)
    for use in (compare.operators_in, compare.golden_in, lambda path: batch.models_in(path, path)):
        with suppress(OpscopeError):  # the next one may answer
            use(folder)


def _small_files(folder: Path) -> None:
    """What lies beside a MindSpore dump."""
    problems: list[str] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            read_order(path, problems)
    read_settings(folder, problems)
    for path in sorted(folder.glob("*.json")):
        read_arguments(path)


def _file_names(text: str) -> None:
    for name in text.splitlines()[:64]:
        for parse in (
            parse_tensor_name,
            parse_raw_name,
            parse_overflow_name,
            parse_arguments_name,
            names.parse,
            parse_name,
        ):
            parse(name)
        names.place(name.split("/"))
        names.sanitised(names.stored_name(name))


def _arguments(text: str) -> None:
    random_states(text)
    parse_arguments(text, call="call")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "accuracy_checker": _as_file(
        "checker/forward_info_0.json", _run(accuracy_checker.FORMAT, above=1)
    ),
    "aicore": _as_folder("collected", _collection),
    "aicore_beside": _as_folder("beside", _beside),
    "aicore_codes": _as_text(codes.explain_code),
    "aicore_log": _log,
    "aicore_object": _as_file("kernel.o", _object),
    "arguments": _as_text(_arguments),
    "arrays": _as_folder("arrays", _run(arrays.FORMAT)),
    "cann": _as_file("Add.add.1.2.3", _dump),
    "cann_graph": _as_file(
        "graph.json", lambda path: fusion.is_graph(path) and fusion.read_graph(path)
    ),
    "cann_mapping": _as_file("names/mapping.csv", lambda path: names.read_mapping(path.parent)),
    "cann_tree": _as_folder("20260101101010", _tree),
    "csv": _as_file("a.csv", read_csv),
    "debug_mode": _as_file("debug.txt", _run(debug_mode.FORMAT)),
    "file_names": _as_text(_file_names),
    "ir": _graph,
    "manifest": lambda data: void(parse_manifest(data, "opscope.jsonl")),
    "mapping": _as_file("mapping.csv", lambda path: read_mapping(path, [])),
    "mindspore": _as_folder("mindspore", _run(MINDSPORE)),
    "mindspore_beside": _as_folder("metadata", _small_files),
    "msprobe": _as_file("probe/dump.json", _run(msprobe.FORMAT, above=1)),
    "msprobe_tree": _as_folder("msprobe", _run(msprobe.FORMAT)),
    "names": _as_file("names.yaml", read_names),
    "native": _as_folder("native", _run(native.FORMAT)),
    "npy": _as_file("a.npy", _npy),
    "npz": _as_file("a.npz", _archive(read_npz)),
    "onnxruntime": _as_file("ort.txt", _run(onnxruntime.FORMAT)),
    "opdebug": lambda data: void(opdebug.decode(data, "Opdebug")),
    "pb": lambda data: void(parse_pb(data)),
    "pt": _as_file("a.pt", read_pt),
    "ptdbg": lambda data: void(ptdbg.parse_pkl(data, "dump.pkl")),
    "tfdbg": _as_folder("tfdbg", _run(tfdbg.FORMAT)),
    "ptdbg_tree": _as_folder("ptdbg", _run(ptdbg.FORMAT)),
    "safetensors": _as_file("a.safetensors", _archive(read_safetensors)),
    "settings": _as_text(_settings),
    "settings_atc": _as_text(_options),
    "statistic": lambda data: void(
        list(parse_statistic(data.decode("utf-8", "replace"), "statistic.csv", []))
    ),
    "txt": _as_file("a.txt", read_txt),
}


def void(value: object) -> None:
    """The answer is of no interest."""
    del value


def attempt(name: str, data: bytes) -> None:
    """One input; AssertionError for an error of several lines, and any error that is not ours goes
    on.
    """
    refused = ""
    try:
        TARGETS[name](data)
    except OpscopeError as error:
        refused = str(error)
    assert "\n" not in refused, f"{name}: an error of several lines"
