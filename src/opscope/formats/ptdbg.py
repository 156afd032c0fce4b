# SPDX-License-Identifier: Apache-2.0
"""Dumps of ptdbg_ascend: a text file called .pkl, one JSON array a line, and a folder of .npy
beside it.

    [step]/rank{id}/{prefix}dump.pkl  ["Functional_conv2d_0_forward_input.0", 1, [],
                                      "torch.float32", [2, 3], [max, min, mean[, l2norm]]]
                                         ["Functional_conv2d_0_forward_stack_info", [[path, line,
                                         function, code], …]]
    [step]/rank{id}/{prefix}dump/*.npy    Functional_conv2d_0_forward_input.0.npy

The name notwithstanding, a .pkl is read as text and never unpickled; one that is no text is
refused. Stack lines stand before or after the tensors of their API. bfloat16 (and on some devices
float16) lies as float32 in the .npy, the type in the .pkl is true. Statistics are over all elements
and mapped by extremes.py. Keyword arguments were never recorded.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.arrays import Array
from opscope.errors import FormatError
from opscope.formats.bounded import read_bounded
from opscope.formats.bounded_json import parse_json
from opscope.formats.extremes import proven
from opscope.formats.folders import file_names, walk
from opscope.formats.foreign import UNKNOWN, ForeignRun
from opscope.formats.msprobe.leaves import plain_value
from opscope.formats.msprobe.stacks import user_line
from opscope.formats.npy import read_npy
from opscope.formats.registry import Format
from opscope.formats.run_builder import RunBuilder
from opscope.run.dtypes import DType, find_dtype
from opscope.run.protocol import Coverage, RunInfo
from opscope.run.schema import Call, Tensor, ValueRef

if TYPE_CHECKING:
    from opscope.run.protocol import Run

_SIZE_LIMIT = 2 << 30
_LINE_LIMIT = 1 << 24
_DEPTH = 5
_STACK = "_stack_info"
_NAME = re.compile(
    r"(?P<call>.+_\d{1,"
    r"15}_(?P<phase>forward|backward))_(?P<io>input|output)(?:\.(?P<slot>\d[\d.]{0,60}))?"
)
_CALL = re.compile(
    r"(?:(?P<prefix>Functional|Tensor|Torch|VF|Aten|NPU|Distributed|Module)_)?(?P<api>.+)_(?P<number>\d{1,15})_(?:forward|backward)"
)
_STEP = re.compile(r"step(\d{1,9})")
_RANK = re.compile(r"rank(\d{1,9})")


class Line(msgspec.Struct, frozen=True):
    """One line of a .pkl about a tensor or a scalar: whose it is, where, and what is known of
    it.
    """

    call: str
    io: str
    slot: str
    columns: dict[str, Any]
    scalar: Any = None
    is_scalar: bool = False


class Parsed(msgspec.Struct, frozen=True):
    """A .pkl: lines in their order, frames by call, problems."""

    lines: tuple[Line, ...] = ()
    stacks: dict[str, tuple[str, ...]] = {}
    problems: tuple[str, ...] = ()


class _Place(msgspec.Struct, frozen=True):
    text: Path
    data: Path
    step: int
    rank: int


def parse_pkl(data: bytes, path: str | Path) -> Parsed:
    """The text of a .pkl; lines that make no sense become problems. FormatError for a real
    pickle.
    """
    if data[:1] == b"\x80" or b"\0" in data[:4096]:
        raise FormatError(
            path,
            "a real pickle, which is never loaded; ptdbg_ascend writes text under this name",
            offset=0,
        )
    lines: list[Line] = []
    stacks: dict[str, tuple[str, ...]] = {}
    problems: list[str] = []
    at = 0
    for number, raw in enumerate(data.split(b"\n"), 1):
        text = raw.strip()
        if text:
            try:
                _take(text, path, lines, stacks)
            except FormatError as error:
                problems.append(f"{path}:{number} at byte {at}: {error.reason}")
        at += len(raw) + 1
    return Parsed(tuple(lines), stacks, tuple(problems))


def _take(
    text: bytes, path: str | Path, lines: list[Line], stacks: dict[str, tuple[str, ...]]
) -> None:
    if len(text) > _LINE_LIMIT:
        raise FormatError(path, "a line of more than 16 MiB")
    value = parse_json(text, path)
    if not isinstance(value, list) or len(value) < 2 or not isinstance(value[0], str):
        raise FormatError(path, "not an array that begins with a name")
    if value[0].endswith(_STACK):
        frames = value[1] if isinstance(value[1], list) else []
        stacks[value[0][: -len(_STACK)]] = tuple(
            _frame(frame) for frame in frames if isinstance(frame, list) and len(frame) >= 3
        )
        return
    parts = _NAME.fullmatch(value[0])
    if parts is None or len(value) < 5:
        raise FormatError(path, f"{value[0][:60]!r} is not the name of a tensor of an API")
    lines.append(_line(parts, value))


def _frame(frame: list[Any]) -> str:
    path, line, function = (str(part)[:4096] for part in frame[:3])
    return f"{path}:{line} in {function}"


def _line(parts: re.Match[str], value: list[Any]) -> Line:
    said = value[3] if isinstance(value[3], str) else ""
    known = find_dtype(said)
    statistics = value[5] if len(value) > 5 and isinstance(value[5], list) else []
    slot = (parts["slot"] or "0").rstrip(".")
    if said.startswith("<class"):
        return Line(
            parts["call"],
            parts["io"],
            slot,
            {},
            statistics[0] if statistics else None,
            is_scalar=True,
        )
    dtype = known.name if known else said[:64] or UNKNOWN
    sizes = value[4] if isinstance(value[4], list) else []
    shape = (
        tuple(sizes)
        if all(type(size) is int and 0 <= size < 1 << 62 for size in sizes) and len(sizes) <= 64
        else None
    )
    columns = proven(dtype, *[*statistics, None, None, None, None][:4], torch=True)
    if shape is not None:
        columns["size"] = math.prod(shape)
    return Line(parts["call"], parts["io"], slot, {"dtype": dtype, "shape": shape} | columns)


def detect(path: Path) -> bool:
    """Whether a path is such a .pkl, or a folder with one."""
    return any(_is_text(place.text) for place in _places(path))


def _is_text(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            head = stream.read(4096)
    except OSError:
        return False
    return (
        re.match(
            rb'\s*\["[^"]{1,1000}_(?:stack_info"|(?:forward|backward)_(?:input|output)[\d.]*")\s*,',
            head,
        )
        is not None
    )


def _places(root: Path) -> Iterator[_Place]:
    if root.is_file():
        if root.suffix == ".pkl":
            yield _place(root)
        return
    for path in _pickles(root):
        yield _place(path)


def _pickles(root: Path) -> Iterator[Path]:
    for folder, names in walk(root, _DEPTH, ".pkl"):
        yield from (folder / name for name in names)


def _place(path: Path) -> _Place:
    parts = (path if path.is_absolute() else path.resolve()).parts[-6:-1]
    step = next(
        (int(digits[1]) for part in reversed(parts) if (digits := _STEP.fullmatch(part))), 0
    )
    rank = next(
        (int(digits[1]) for part in reversed(parts) if (digits := _RANK.fullmatch(part))), 0
    )
    return _Place(path, path.with_suffix(""), step, rank)


def open_dump(path: Path) -> Run:
    """The dump as a run; FormatError when no .pkl in it can be read."""
    builder = _Builder(path if path.is_dir() else path.parent)
    by_rank: dict[int, list[_Place]] = defaultdict(list)
    for place in _places(path):
        by_rank[place.rank].append(place)
    for rank in sorted(by_rank):
        builder.add_process(sorted(by_rank[rank], key=lambda p: (p.step, p.text)))
    return ForeignRun(
        RunInfo(path=str(path), format="ptdbg_ascend", coverage=WRITTEN_LATE),
        builder.root,
        builder.rows.tables(path, "no .pkl of ptdbg_ascend below it"),
        builder.draft,
        load=load_value,
    )


# It writes the positional arguments of a function, once the function has returned.
WRITTEN_LATE = Coverage(keywords=False, before=False)
FORMAT = Format("ptdbg_ascend", detect, open_dump)


def load_value(path: Path, key: str, true: DType | None) -> Array:  # noqa: ARG001 - the signature of all loaders
    """Elements of an .npy of a dump in their true type."""
    return read_npy(path, true=true)


class _Builder:
    """Collects the calls of the .pkl files of a dump."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rows = RunBuilder()
        self._lines: dict[tuple[int, int], tuple[list[Line], str, frozenset[str]]] = {}

    def add_process(self, places: list[_Place]) -> None:
        """All files of one rank."""
        self.rows.start_process(str(places[0].text.parent), places[0].rank)
        for place in places:
            parsed = self._parse(place.text)
            if parsed is not None:
                self._add(place, parsed)

    def _parse(self, path: Path) -> Parsed | None:
        try:
            parsed = parse_pkl(read_bounded(path, limit=_SIZE_LIMIT, what="a .pkl"), path)
        except FormatError as error:
            self.rows.problems.append(str(error))
            return None
        self.rows.problems.extend(parsed.problems)
        self.rows.read |= bool(parsed.lines or parsed.stacks)
        return parsed

    def _add(self, place: _Place, parsed: Parsed) -> None:
        grouped: dict[str, list[Line]] = defaultdict(list)
        for line in parsed.lines:
            grouped[line.call].append(line)
        prefix = os.path.relpath(place.data, self.root)
        files = frozenset(file_names(place.data))
        indices = {name: self.rows.index + i for i, name in enumerate(grouped)}
        for name, lines in grouped.items():
            call = self._call(name, lines, indices, parsed.stacks, place.step)
            self._lines[call.process, call.index] = (lines, prefix, files)

    def _call(
        self,
        name: str,
        lines: list[Line],
        indices: dict[str, int],
        stacks: dict[str, tuple[str, ...]],
        step: int,
    ) -> Call:
        parts = _CALL.fullmatch(name)
        prefix, api = (parts["prefix"], parts["api"]) if parts else (None, name)
        backward = name.endswith("backward")
        forward = name[: -len("backward")] + "forward" if backward else None
        frames = stacks.get(name, ())
        source = user_line(frames) or (user_line(stacks.get(forward, ())) if forward else None)
        return self.rows.add_call(
            step=step,
            level="module" if prefix in {None, "Module"} else "api",
            phase="communication"
            if prefix == "Distributed"
            else "backward"
            if backward
            else "forward",
            op=api if prefix in {None, "Module"} else f"{prefix}.{api}",
            name=name,
            forward_index=indices.get(forward) if forward else None,
            stack=self.rows.add_stack(frames),
            source=source,
            args=None if backward else _arguments(lines),
        )

    def draft(self, call: Call) -> list[Tensor]:
        """Rows of one call: the file's values where it is there, else the statistics of the
        .pkl.
        """
        lines, prefix, files = self._lines[call.process, call.index]
        rows = []
        for line in lines:
            if line.is_scalar:
                continue
            columns = dict(line.columns)
            file = f"{line.call}_{line.io}.{line.slot}.npy"
            if file in files:
                columns = {
                    "dtype": columns["dtype"],
                    "shape": columns["shape"],
                    "value": ValueRef(f"{prefix}/{file}", ""),
                }
            rows.append(
                Tensor(
                    process=call.process, index=call.index, io=line.io, slot=line.slot, **columns
                )
            )
        return rows


def _arguments(lines: list[Line]) -> str:
    """Positional arguments as far as they were recorded; a gap is null."""
    tree: list[Any] = []
    for line in lines:
        if line.io != "input":
            continue
        value = plain_value(line.scalar) if line.is_scalar else {"tensor": line.slot}
        target = tree
        path = [int(part) for part in line.slot.split(".") if part.isdigit()]
        if not path or any(position > 4096 for position in path):
            continue
        for position in path[:-1]:
            target = _at(target, position)
        _at(target, path[-1])
        target[path[-1]] = value
    return msgspec.json.encode({"args": tree, "kwargs": {}}).decode()


def _at(items: list[Any], position: int) -> list[Any]:
    """The list at a position, made when there is none."""
    items.extend([None] * (position + 1 - len(items)))
    if not isinstance(items[position], list):
        items[position] = []
    nested: list[Any] = items[position]
    return nested
