# SPDX-License-Identifier: Apache-2.0
"""Open a MindSpore dump as a run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError
from opscope.formats.foreign import ForeignRun, Tables
from opscope.formats.loading import mapped_elements
from opscope.formats.manifest import has_manifest, open_manifest
from opscope.formats.mindspore.calls import Builder, Folder, Loaded, load_graph, read_folder
from opscope.formats.mindspore.failed import Failed
from opscope.formats.mindspore.graph import Graph
from opscope.formats.mindspore.ir import read_ir
from opscope.formats.mindspore.layout import Place, find_places
from opscope.formats.mindspore.metadata import read_order, read_settings
from opscope.formats.mindspore.names import parse_tensor_name
from opscope.formats.mindspore.pb import read_pb
from opscope.formats.mindspore.raw import raw_value
from opscope.formats.mindspore.rows import Drafter
from opscope.formats.npy import as_true_type, read_npy
from opscope.run.dtypes import DType
from opscope.run.protocol import Coverage, RunInfo
from opscope.run.schema import Process

if TYPE_CHECKING:
    from opscope.run.protocol import Run

_SAVED = re.compile(
    r"trace_code_graph_\d{1,9}(?:\.ir)?"
)  # what save_graphs writes: numbered by pass, not by graph
_ENTRY = re.compile(rb"# IR entry\s*:\s*@kernel_graph_?(\d{1,9})\s")
_HEAD = 4096  # bytes in which a graph says which one it is


def open_dump(path: Path, *, failed: Failed | None = None) -> Run:
    """The dump as a run; FormatError when there is no data folder in it. See
    docs/formats-mindspore.md.

    failed is what its last graph raised: every kernel that this may mean is a call with an error.
    """
    if has_manifest(path):
        return open_manifest(path)
    places = find_places(path)
    if not places:
        raise FormatError(
            path, "no data folder of a MindSpore dump below it (rank_0/NET/GRAPH/ITERATION)"
        )
    problems: list[str] = []
    settings = _settings(places, problems)
    builder = Builder(
        problems, cpu=settings.get("config", {}).get("device_target") == "CPU", failed=failed
    )
    processes = tuple(
        _fill(builder, path, process, part, problems)
        for process, part in enumerate(_by_process(places))
    )
    tables = Tables(
        calls=tuple(builder.calls),
        processes=processes,
        stacks=tuple(builder.stacks),
        problems=tuple(problems),
    )
    late: list[str] = []
    drafter = Drafter(path, builder.files, builder.held, late)
    info = RunInfo(
        path=str(path),
        format="mindspore",
        version=_text(settings, "ms_version"),
        config=settings,
        coverage=Coverage(before=False),  # operands are dumped once a kernel is done
    )
    return ForeignRun(info, path, tables, drafter, load=load_value, late=late)


def _text(settings: dict[str, Any], name: str) -> str | None:
    value = settings.get("config", {}).get(name)
    return value if isinstance(value, str) else None


def _settings(places: list[Place], problems: list[str]) -> dict[str, Any]:
    base = next((place.base for place in places if place.base is not None), None)
    return read_settings(base / ".dump_metadata", problems) if base is not None else {}


def _by_process(places: list[Place]) -> list[list[Place]]:
    """One process for each rank; asynchronous trees of several times without steps above them are
    several launches.
    """
    groups: dict[tuple[int, str], list[Place]] = defaultdict(list)
    times: dict[int, set[str]] = defaultdict(set)
    for place in places:
        times[place.rank].add(place.time)
    for place in places:
        stepped = (
            place.device is None or len(times[place.rank]) < 2 or _steps_above(places, place.rank)
        )
        groups[place.rank, "" if stepped else place.time].append(place)
    return [
        sorted(group, key=lambda place: (place.step, place.time, place.iteration, place.graph))
        for _, group in sorted(groups.items())
    ]


def _steps_above(places: list[Place], rank: int) -> bool:
    """Whether the launches of a device stand below folders of the user's steps."""
    return any(
        place.device is not None
        and place.rank == rank
        and place.path.parents[_depth(place)].name.isdigit()
        for place in places
    )


def _depth(place: Place) -> int:
    return 4 if place.net else 1


def _fill(
    builder: Builder, root: Path, process: int, places: list[Place], problems: list[str]
) -> Process:
    """Read the folders of one process and add their calls."""
    builder.start_process(process)
    folders = [read_folder(place, problems) for place in places]
    loaded = _graphs(root, folders, problems)
    for folder in _in_order(folders):
        builder.add(folder, loaded.get(folder.place.graph) if not folder.place.constants else None)
    builder.end_process()
    first = places[0]
    directory = str(first.base) if first.base is not None else str(first.path)
    return Process(process=process, directory=directory, rank=first.rank)


def _in_order(folders: list[Folder]) -> list[Folder]:
    """Folders by step; the graphs of one step by the time of their first file, constants before
    all.
    """
    return sorted(
        folders,
        key=lambda f: (
            not f.place.constants,
            f.place.step,
            f.place.time,
            f.runs[0].time if f.runs else 0,
        ),
    )


def _graphs(root: Path, folders: list[Folder], problems: list[str]) -> dict[int, Loaded]:
    """Graphs with data, joined; a .pb is read where the .ir is missing or torn, else what
    save_graphs wrote, where it lies beside.
    """
    base = next((folder.place.base for folder in folders if folder.place.base is not None), None)
    if base is None:
        return {}
    numbers = {folder.place.graph for folder in folders}
    beside = (base / "graphs", base, root, root / "graphs")
    graphs = {
        number: graph
        for number in numbers
        if (graph := _read_graph(beside, number, problems)) is not None
    }
    orders = {
        number: read_order(
            base / "execution_order" / f"ms_execution_order_graph_{number}.csv", problems
        )
        for number in numbers
    }
    joined = {}
    for number in numbers:
        loaded = load_graph(
            base,
            number,
            [f for f in folders if f.place.graph == number and not f.place.constants],
            (graphs, orders),
        )
        if loaded is not None:
            joined[number] = loaded
    return joined


def _read_graph(beside: Sequence[Path], number: int, problems: list[str]) -> Graph | None:
    own = beside[0] / f"ms_output_trace_code_graph_{number}"
    for path in (own.with_suffix(".ir"), own.with_suffix(".pb"), *_saved_graphs(beside, number)):
        read = read_pb if path.suffix == ".pb" else read_ir
        if not path.is_file():
            continue
        try:
            graph = read(path)
        except FormatError as error:
            problems.append(str(error))
            continue
        problems.extend(graph.problems)
        if graph.nodes:
            return graph
    return None


def _saved_graphs(folders: Sequence[Path], number: int) -> Iterator[Path]:
    """Graphs of this number that save_graphs wrote into one of these folders, the latest pass
    first.
    """
    for folder in folders:
        try:
            paths = sorted(
                (path for path in folder.iterdir() if _SAVED.fullmatch(path.name)), reverse=True
            )
        except OSError:
            continue
        for path in paths:
            if path.is_symlink() or not path.is_file():
                continue
            with path.open("rb") as file:
                entry = _ENTRY.search(file.read(_HEAD))
            if entry is not None and int(entry[1]) == number:
                yield path


def load_value(path: Path, key: str, true: DType | None) -> Array:
    """Elements of an .npy, of a .bin (flat: its shape stands nowhere) or of a tensor of a CANN dump
    file, in their true type.
    """
    if key:
        return raw_value(path, key)
    if path.suffix == ".npy":
        return read_npy(path, true=true)
    return _read_bin(path, true)


def _read_bin(path: Path, true: DType | None) -> Array:
    """Plain elements; bfloat16 is widened to float32 as in the .npy files, which the size alone
    cannot tell.
    """
    if true is None or true.numpy is None:
        named = parse_tensor_name(path.name)
        raise FormatError(
            path, f"element type {named.dtype if named else None} of a .bin is not known"
        )
    stored = np.dtype(np.float32) if true.name == "bfloat16" else true.to_numpy()
    return as_true_type(mapped_elements(path, stored, true.name), true, path)
