# SPDX-License-Identifier: Apache-2.0
"""The list that opscope lays beside what it converts, so that reading it back loses nothing:
opscope.jsonl.

One JSON object a line, each with one key: {"opscope": {format, version, info}} first, then
{"process": …}, {"call": …}, {"stack": …}, {"judgement": …} and {"tensor": …}, the fields being the
columns of docs/schema.md. A tensor's value names the file that holds it, relative to the list, and
the key in that file. The dump's own files stay what their format says.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import FormatError, NewerFormatError
from opscope.formats.bounded import read_bounded
from opscope.formats.foreign import ForeignRun, Tables
from opscope.formats.loading import load_array
from opscope.run.protocol import RunInfo
from opscope.run.schema import TABLES, Call, Judgement, Process, Stack, Tensor

if TYPE_CHECKING:
    from opscope.run.protocol import Run

NAME = "opscope.jsonl"
VERSION = 1
_SIZE_LIMIT = 8 << 30
_LINE_LIMIT = 64 << 20
_INTEGERS = {
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint64": (0, (1 << 64) - 1),
    "list<int64>": (-(1 << 63), (1 << 63) - 1),
}
_BOUNDS = {
    table: {name: _INTEGERS[kind] for name, kind in kinds.items() if kind in _INTEGERS}
    for table, kinds in TABLES.items()
}


class Head(msgspec.Struct, frozen=True):
    """First line: version of the list and facts about the run it was made from."""

    version: int
    info: RunInfo


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line; exactly one field is set."""

    opscope: Head | None = None
    process: Process | None = None
    call: Call | None = None
    stack: Stack | None = None
    judgement: Judgement | None = None
    tensor: Tensor | None = None


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """A whole list."""

    info: RunInfo
    processes: tuple[Process, ...] = ()
    calls: tuple[Call, ...] = ()
    stacks: tuple[Stack, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    problems: tuple[str, ...] = ()


def write_manifest(folder: Path, contents: Contents) -> None:
    """Write opscope.jsonl into a folder."""
    encoder = msgspec.json.Encoder()
    with (folder / NAME).open("wb") as stream:
        for line in _lines(contents):
            stream.write(encoder.encode(line) + b"\n")


def _lines(contents: Contents) -> Iterable[Line]:
    yield Line(opscope=Head(VERSION, contents.info))
    for process in contents.processes:
        yield Line(process=process)
    for call in contents.calls:
        yield Line(call=call)
    for stack in contents.stacks:
        yield Line(stack=stack)
    for judgement in contents.judgements:
        yield Line(judgement=judgement)
    for tensor in contents.tensors:
        yield Line(tensor=tensor)


def has_manifest(folder: Path) -> bool:
    """Whether a folder holds such a list."""
    path = folder / NAME
    try:
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return stream.read(11) == b'{"opscope":'
    except OSError:
        return False


def parse_manifest(data: bytes, path: str | Path) -> Contents:
    """The list out of its bytes; lines that are torn or wrong become problems. FormatError without
    a first line.
    """
    decoder = msgspec.json.Decoder(Line)
    rows: dict[str, list[Any]] = {
        name: [] for name in ("process", "call", "stack", "judgement", "tensor")
    }
    head: Head | None = None
    problems: list[str] = []
    at = 0
    for raw in data.split(b"\n"):
        if raw.strip():
            line = _decoded(decoder, raw, f"{path} at byte {at}", problems)
            if line is not None and line.opscope is not None and head is None:
                head = line.opscope
            for name, items in rows.items():
                value = getattr(line, name, None)
                if value is not None:
                    items.append(value)
        at += len(raw) + 1
    if head is None:
        raise FormatError(path, "does not begin with the line of an opscope list", offset=0)
    if head.version > VERSION:
        raise NewerFormatError(
            path, f"a list of version {head.version}; this opscope reads {VERSION}"
        )
    names = {
        "process": "processes",
        "call": "calls",
        "stack": "stacks",
        "judgement": "judgements",
        "tensor": "tensors",
    }
    return Contents(
        info=head.info,
        problems=tuple(problems),
        **{names[name]: tuple(items) for name, items in rows.items()},
    )


def _decoded(
    decoder: msgspec.json.Decoder[Line], raw: bytes, where: str, problems: list[str]
) -> Line | None:
    if len(raw) > _LINE_LIMIT:
        problems.append(f"{where}: a line of more than 64 MiB")
        return None
    try:
        line = decoder.decode(raw)
        _check_numbers(line)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        problems.append(f"{where}: {error}")
        return None
    return line


def _check_numbers(line: Line) -> None:
    """ValueError for an integer that its column cannot hold."""
    for table in TABLES:
        row = getattr(line, table.removesuffix("s"))
        for name, (low, high) in _BOUNDS[table].items() if row is not None else ():
            said = getattr(row, name)
            for number in said if isinstance(said, tuple) else (said,):
                if number is not None and not low <= number <= high:
                    raise ValueError(f"{name} {number} is beyond {high}")


def open_manifest(folder: Path) -> Run:
    """The run a list describes; statistics are measured again from the files that are there."""
    path = folder / NAME
    contents = parse_manifest(read_bounded(path, limit=_SIZE_LIMIT, what="a list"), path)
    by_call: dict[tuple[int, int], list[Tensor]] = {}
    for tensor in contents.tensors:
        by_call.setdefault((tensor.process, tensor.index), []).append(tensor)
    tables = Tables(
        calls=contents.calls,
        processes=contents.processes,
        stacks=contents.stacks,
        judgements=contents.judgements,
        problems=contents.problems,
    )
    info = msgspec.structs.replace(contents.info, path=str(folder))
    return ForeignRun(
        info,
        folder,
        tables,
        lambda call: by_call.get((call.process, call.index), ()),
        load=load_array,
    )
