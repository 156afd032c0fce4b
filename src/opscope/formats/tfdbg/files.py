# SPDX-License-Identifier: Apache-2.0
"""Which files belong to a dump, and the records in them.

    tfdbg_events.{seconds}.{host}.{kind}   metadata, source_files, stack_frames, graphs, execution,
                                           graph_execution_traces

Each is a TFRecord file: a length of eight bytes, the checksum of the length, that many bytes and
their checksum. The length's checksum is held; that of the bytes is not, in the interest of time.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from opscope.errors import FormatError
from opscope.formats.bounded import read_bounded
from opscope.formats.cann.wire import varint
from opscope.formats.folders import walk

KINDS = ("source_files", "stack_frames", "graphs", "execution", "graph_execution_traces")
_METADATA = re.compile(r"(.{0,200}tfdbg_events\.\d{1,20}\..{1,255})\.metadata")
_DEPTH = 2
_HEAD, _TAIL = 12, 4
_EVENT_OF_METADATA = 3  # field of DebugEvent
_LARGEST_METADATA = 1 << 20


def checksum(data: bytes) -> int:
    """CRC-32C of a few bytes, masked as TFRecord files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def dump_prefixes(path: Path) -> list[Path]:
    """The beginning of the names of each set of files in a folder, in order of their names."""
    if not path.is_dir():
        return []
    return [
        folder / metadata[1]
        for folder, names in walk(path, _DEPTH, ".metadata")
        for name in names
        if (metadata := _METADATA.fullmatch(name))
    ]


def looks_like_dump(path: Path) -> bool:
    """Whether a folder holds the metadata of such a dump."""
    return any(map(_is_metadata, dump_prefixes(path)))


def file_of(prefix: Path, kind: str) -> Path:
    """The file of one kind in a set."""
    return prefix.with_name(f"{prefix.name}.{kind}")


def _is_metadata(prefix: Path) -> bool:
    path = file_of(prefix, "metadata")
    try:
        head = read_bounded(path, limit=_LARGEST_METADATA, what="the metadata of a dump")
        _, data = next(_split(head, path))
        return bool(data) and _fields(data) & {_EVENT_OF_METADATA} != set()
    except (FormatError, StopIteration, IndexError):
        return False


def _fields(data: bytes) -> set[int]:
    """The numbers of the fields of a message, as far as it is one."""
    numbers, at = set(), 0
    while at < len(data):
        tag, at = varint(data, at)
        size = {1: 8, 5: 4}.get(tag & 7, 0)
        if tag & 7 in (0, 2):
            value, at = varint(data, at)
            size = value if tag & 7 == 2 else 0
        numbers.add(tag >> 3)
        at += size
    return numbers


def _split(data: bytes, path: Path) -> Iterator[tuple[int, bytes]]:
    from io import BytesIO

    return _records(BytesIO(data), len(data), path)


def records(path: Path) -> Iterator[tuple[int, bytes]]:
    """The records of a file, each with its place in it; FormatError at the first that is torn, or
    when the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            yield from _records(stream, path.stat().st_size, path)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error


def _records(stream: BinaryIO, size: int, path: Path) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < size:
        head = stream.read(_HEAD)
        if len(head) < _HEAD:
            raise FormatError(path, "a record that is cut short", offset=at)
        length, told = struct.unpack("<QI", head)
        if checksum(head[:8]) != told:
            raise FormatError(path, "a record whose length has another checksum", offset=at)
        if length > size - at - _HEAD - _TAIL:
            raise FormatError(path, "a record that is cut short", offset=at)
        data = stream.read(length)
        stream.read(_TAIL)
        yield at + _HEAD, data
        at += _HEAD + length + _TAIL


def read_at(path: Path, offset: int, length: int) -> bytes:
    """Some bytes of a file; FormatError when it does not have them."""
    try:
        with path.open("rb") as stream:
            if offset + length > path.stat().st_size:
                raise FormatError(path, f"no {length} bytes at {offset}", offset=offset)
            stream.seek(offset)
            return stream.read(length)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
