# SPDX-License-Identifier: Apache-2.0
"""Folders of plain arrays: .npy, .npz, .safetensors, .pt, and what opscope convert wrote.

Names say what they can. In this order:

    opscope.jsonl beside the files                            everything (manifest.py)
    {type}.{name}.{task}.{stream}.{time}.{input|output}.{i}…  a kernel, as CANN's and MindSpore's
                                                              converters name files
    {entry}.{input|kwargs|output|parameters}.{slot}           an entry of msprobe
    {name}.{index}.{timestamp}.npy                            output of a TensorFlow node (a golden)
    anything else                                             a call of its own, with one output for
                                                              each array in it

Folders rank{n} and step{n} on the way give rank and step. Timestamps in names give the order, else
names do, numbers in them by their size; when a file was written says nothing, since copies lose it.
RunInfo.config["order"] is "time" or "names".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opscope.errors import FormatError
from opscope.formats import opdebug
from opscope.formats.archives import keys_of
from opscope.formats.cann.names import is_opdebug, read_mapping
from opscope.formats.folders import walk
from opscope.formats.foreign import UNKNOWN, ForeignRun, Tables
from opscope.formats.loading import load_array
from opscope.formats.manifest import has_manifest, open_manifest
from opscope.formats.mindspore.names import known_number, parse_tensor_name
from opscope.formats.mindspore.raw import overflow_units
from opscope.formats.msprobe.names import parse_name
from opscope.formats.npy import MAGIC
from opscope.formats.pt import PtFile
from opscope.formats.registry import Format
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Process, Tensor, ValueRef
from opscope.run.store.layout import PROCESSES, RUN_FILE

if TYPE_CHECKING:
    from opscope.run.protocol import Run

_SUFFIXES = (".npy", ".npz", ".safetensors", ".pt", ".pth")
_DEPTH = 6
_LOOKED_AT = 2000
_GOLDEN = re.compile(r"(?P<name>.+)\.(?P<index>\d{1,6})\.(?P<time>\d{10,20})")
_ENTRY = re.compile(r"(?P<entry>.+?)\.(?P<io>input|kwargs|output|parameters)(?:\.(?P<slot>.+))?")
_DIGITS = re.compile(r"(\d{1,18})", re.ASCII)
_RANK = re.compile(r"rank[_-]?(\d{1,9})")
_STEP = re.compile(r"step[_-]?(\d{1,9})")


class Piece(msgspec.Struct, frozen=True, gc=False):
    """One file of arrays: the call it belongs to and what its name says."""

    file: str  # relative to the root
    call: str
    op: str
    io: str
    slot: str | None  # None: the keys in the file are the slots
    time: int = 0
    role: str | None = None
    phase: str = "forward"
    level: str = "operator"
    task: int | None = None
    stream: int | None = None
    dtype: str | None = None


def detect(path: Path) -> bool:
    """Whether a path is a file of arrays, or a folder with some, by their first bytes."""
    if path.is_file():
        return path.suffix in _SUFFIXES and _is_array(path)
    if has_manifest(path):
        return True
    for seen, file in enumerate(_files(path)):
        if _is_array(path / file):
            return True
        if seen > _LOOKED_AT:
            break
    return False


def _is_array(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            head = stream.read(16)
    except OSError:
        return False
    if path.suffix == ".npy":
        return head.startswith(MAGIC)
    if path.suffix == ".safetensors":
        return (
            len(head) > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 100 << 20
        )
    return head.startswith(b"PK\x03\x04")


def _files(root: Path) -> Iterator[str]:
    """Files of arrays below a folder, relative to it with "/" between the names."""
    run: Path | None = None
    for folder, names in walk(root, _DEPTH, _SUFFIXES):
        if run is None or run not in folder.parents:
            run = (
                folder if (folder / RUN_FILE).is_file() and (folder / PROCESSES).is_dir() else None
            )
        if run is None:  # the shards of a recording are no loose arrays
            prefix = "".join(f"{part}/" for part in folder.relative_to(root).parts)
            yield from (prefix + name for name in names)


def _records(root: Path) -> Iterator[str]:
    """Overflow records as JSON below a folder, as converters write them beside the arrays."""
    for folder, names in walk(root, _DEPTH, ".json"):
        prefix = "".join(f"{part}/" for part in folder.relative_to(root).parts)
        yield from (prefix + name for name in names if is_opdebug(name))


def open_folder(path: Path) -> Run:
    """The arrays as a run; FormatError when there are none."""
    if path.is_dir() and has_manifest(path):
        return open_manifest(path)
    root = path if path.is_dir() else path.parent
    files = [path.name] if path.is_file() else list(_files(path))
    if not files:
        raise FormatError(path, "no .npy, .npz, .safetensors or .pt below it")
    late: list[str] = []
    builder = _Builder(root, late)
    for file in files:
        builder.add(file)
    tables = builder.tables(list(_records(path)) if path.is_dir() else [])
    info = RunInfo(
        path=str(path), format="arrays", config={"order": "time" if builder.timed else "names"}
    )
    return ForeignRun(info, root, tables, builder.draft, load=load_array, late=late)


FORMAT = Format("arrays", detect, open_folder)


class _Builder:
    """Groups files into calls."""

    def __init__(self, root: Path, late: list[str]) -> None:
        self._root = root
        self._late = late
        self._groups: dict[tuple[int, int, str], list[Piece]] = defaultdict(list)
        self._pieces: dict[tuple[int, int], list[Piece]] = {}
        self._folders: dict[
            str, tuple[int, int, dict[str, str]]
        ] = {}  # rank and step its path says, names that were too long

    def add(self, file: str) -> None:
        """Take one file, by its path below the root."""
        folder, _, name = file.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = (
                _number(folder, _RANK),
                _number(folder, _STEP),
                read_mapping(self._root / folder),
            )
        rank, step, known = self._folders[folder]
        piece = parse_piece(folder, name, known.get(name, name))
        self._groups[rank, step, piece.call].append(piece)

    @property
    def timed(self) -> bool:
        """Whether all names say when their tensors were made."""
        return all(piece.time for pieces in self._groups.values() for piece in pieces)

    def tables(self, records: list[str]) -> Tables:
        """Calls in the order of rank, step, time and name, with the overflow bits of the records
        that lie in their folder.
        """
        order = sorted(
            self._groups.items(),
            key=lambda group: (
                group[0][0],
                group[0][1],
                min(piece.time for piece in group[1]),
                natural(group[0][2]),
            ),
        )
        ranks = sorted({rank for rank, _, _ in self._groups})
        numbers = {rank: number for number, rank in enumerate(ranks)}
        calls: list[Call] = []
        following: dict[int, int] = defaultdict(int)
        for (rank, step, name), pieces in order:
            first, process = pieces[0], numbers[rank]
            call = Call(
                process=process,
                rank=rank,
                step=step,
                index=following[process],
                level=first.level,
                phase=first.phase,
                op=first.op,
                name=name,
                task=first.task,
                stream=first.stream,
            )
            following[process] += 1
            calls.append(call)
            self._pieces[process, call.index] = pieces
        calls = self._with_status(calls, records)
        return Tables(
            calls=tuple(calls),
            processes=tuple(
                Process(process=numbers[rank], directory=".", rank=rank) for rank in ranks
            ),
        )

    def _with_status(self, calls: list[Call], records: list[str]) -> list[Call]:
        """The calls marked; a record whose operator has no arrays is a line, and a call of its
        own.
        """
        for record in records:
            for unit in self._units(record):
                own = [at for at, call in enumerate(calls) if self._is_of(call, record, unit)]
                if own:
                    calls[own[0]] = msgspec.structs.replace(
                        calls[own[0]], status=(calls[own[0]].status or 0) | unit.bits
                    )
                else:
                    calls.append(self._lost(record, unit, calls))
        return calls

    def _units(self, record: str) -> list[opdebug.Unit]:
        try:
            return overflow_units(self._root / record)
        except FormatError as error:
            self._late.append(str(error))
            return []

    def _is_of(self, call: Call, record: str, unit: opdebug.Unit) -> bool:
        pieces = self._pieces.get((call.process, call.index), [])
        beside = bool(pieces) and pieces[0].file.rpartition("/")[0] == record.rpartition("/")[0]
        return beside and opdebug.same_task(unit, call.task, call.stream, None, None)

    def _lost(self, record: str, unit: opdebug.Unit, calls: list[Call]) -> Call:
        name = f"{unit.name} task {unit.task} stream {unit.stream} in {record}"
        index = 1 + max((call.index for call in calls if call.process == 0), default=-1)
        self._pieces[0, index] = []
        return Call(
            process=0,
            rank=calls[0].rank,
            step=calls[0].step,
            index=index,
            level="operator",
            phase="forward",
            op="Opdebug",
            name=name,
            task=unit.task,
            stream=unit.stream,
            status=unit.bits,
        )

    def draft(self, call: Call) -> list[Tensor]:
        """Rows of one call; an archive that cannot be read leaves a line."""
        pieces = self._pieces[call.process, call.index]
        return [
            row
            for piece in sorted(pieces, key=lambda piece: (piece.io, piece.slot or ""))
            for row in self._rows(call, piece)
        ]

    def _rows(self, call: Call, piece: Piece) -> list[Tensor]:
        path = self._root / piece.file
        try:
            keys = (
                [name for name, _ in PtFile(path).tensors()]
                if path.suffix in {".pt", ".pth"}
                else list(keys_of(path))
            )
        except FormatError as error:
            self._late.append(str(error))
            return []
        lone = len(keys) == 1 and (piece.slot is not None or keys[0] == "")
        return [
            Tensor(
                process=call.process,
                index=call.index,
                io=piece.io,
                slot=(piece.slot or "0") if lone else key,
                dtype=piece.dtype or UNKNOWN,
                role=piece.role,
                tensor_name=None if lone else key,
                value=ValueRef(piece.file, key),
            )
            for key in keys
        ]


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts names as people number them: layer2 before layer10."""
    return [
        (int(part), "") if number % 2 else (0, part)
        for number, part in enumerate(_DIGITS.split(name))
    ]


def _number(folder: str, pattern: re.Pattern[str]) -> int:
    return next(
        (
            int(digits[1])
            for part in reversed(folder.split("/"))
            if (digits := pattern.fullmatch(part))
        ),
        0,
    )


def parse_piece(folder: str, name: str, known_as: str) -> Piece:
    """What the name of a file in a folder says of the array in it; known_as is the name it should
    have had (mapping.csv).
    """
    file = f"{folder}/{name}" if folder else name
    stem, _, suffix = known_as.rpartition(".")
    kernel = parse_tensor_name(known_as if suffix == "npy" else f"{stem}.npy")
    if kernel is not None:
        slot = str(kernel.index) if kernel.slot in {None, 0} else f"{kernel.index}.{kernel.slot}"
        return Piece(
            file,
            f"{kernel.type}.{kernel.name}",
            kernel.type,
            kernel.io,
            slot,
            kernel.time,
            task=known_number(kernel.task),
            stream=known_number(kernel.stream),
            dtype=kernel.dtype,
        )
    entry = _ENTRY.fullmatch(stem)
    parts = parse_name(entry["entry"]) if entry else None
    if entry is not None and parts is not None:
        kwargs = entry["io"] in {"kwargs", "parameters"}
        slot = f"{entry['io']}.{entry['slot']}" if kwargs else entry["slot"] or "0"
        role = "parameter" if entry["io"] == "parameters" else None
        io = "output" if entry["io"] == "output" else "input"
        return Piece(
            file,
            entry["entry"],
            parts.op,
            io,
            slot,
            role=role,
            phase=parts.phase,
            level=parts.level,
        )
    golden = _GOLDEN.fullmatch(stem)
    if golden is not None and suffix == "npy":
        return Piece(
            file, golden["name"], "TensorFlow", "output", golden["index"], int(golden["time"])
        )
    return Piece(file, f"{folder}/{stem}" if folder else stem, "array", "output", None)
