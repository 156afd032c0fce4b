# SPDX-License-Identifier: Apache-2.0
"""One CANN dump file: its header as records, its payloads as places in the file. Reads and writes
all three forms.

    plain   u64 header length, header (protobuf), then the payload of each entry: inputs, outputs,
            buffers, spaces
    inline  the whole file is the header, the bytes of each entry inside it (before 2020; msaccucmp
            -v 1)
    nano    u64 head length, head (tag-length-value), inputs, outputs

Payloads follow each other without padding. The device writer leaves out the bytes of a tensor whose
address is null but keeps its size in the header; a file that stops early keeps the tensors that are
whole.
"""

from __future__ import annotations

import os
import struct
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.errors import FormatError
from opscope.formats.bounded import OPEN_FLAGS
from opscope.formats.cann import nano
from opscope.formats.cann.message import (
    HEADER,
    INLINE,
    SUMMARY,
    BufferEntry,
    DumpData,
    SpaceEntry,
    TensorEntry,
)
from opscope.formats.cann.wire import Decoder, Span, encode, varint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from opscope.arrays import Bytes

Entry = TensorEntry | BufferEntry | SpaceEntry

PLAIN, INLINE_FORM, NANO = "plain", "inline", "nano"
MAX_HEADER = 64 << 20
_LENGTH = struct.Struct("<Q")
_SNIFF = 16
_MAP_FROM = 1 << 20  # a smaller payload is read in less time than it is mapped
_FIRST = 4096  # most headers are in the first page
# Keys of fields on the wire: number and wire type.
_VERSION, _TIME, _OP_NAME = 0x0A, 0x10, 0x32
_ENTRIES = frozenset((0x1A, 0x22, 0x2A, 0x42))  # outputs, inputs, buffers, spaces


class DumpFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a dump file holds; spans[i] is where the bytes of header.entries()[i] lie, short when
    they are not all there.

    trailing counts the bytes behind the last payload; nano_version is the version number of a nano
    head.
    """

    path: str
    form: str
    header: DumpData
    spans: tuple[Span, ...]
    trailing: int = 0
    nano_version: int = 0

    def whole(self, index: int) -> bool:
        """Whether every byte the header promises for entry index is in the file."""
        return self.spans[index].length >= self.header.entries()[index].size

    def payload(self, index: int) -> Bytes:
        """Bytes of entry index, memory-mapped when large; raises FormatError when the file can no
        longer be read.
        """
        span = self.spans[index]
        if span.length == 0:
            return np.empty(0, np.uint8)
        try:
            if span.length < _MAP_FROM:
                return np.frombuffer(_read_at(self.path, span), np.uint8, span.length)
            return np.memmap(self.path, np.uint8, "r", span.offset, (span.length,))
        except (OSError, ValueError) as error:
            raise FormatError(
                self.path, f"its payload cannot be read: {error}", offset=span.offset
            ) from error


def _read_at(path: str, span: Span) -> bytes:
    with FileIO(path) as file:
        file.seek(span.offset)
        return file.read(span.length)


def sniff(path: str | PathLike[str]) -> str | None:
    """Form of the dump file at path, from its first bytes, or None when it is no CANN dump file."""
    try:
        file = os.open(path, OPEN_FLAGS)
        try:
            size = os.fstat(file).st_size
            start = os.read(file, _SNIFF)
        finally:
            os.close(file)
    except OSError:
        return None
    return _form(start, size)


def _form(start: bytes, size: int) -> str | None:
    """Form by the first 16 bytes and the file's size."""
    if len(start) >= 12 and struct.unpack_from("<I", start, 8)[0] == nano.MAGIC:
        return NANO
    if len(start) >= 10 and _LENGTH.unpack_from(start)[0] <= size - 8 and _version_field(start[8:]):
        return PLAIN
    return INLINE_FORM if _version_field(start) else None


def _version_field(start: bytes) -> bool:
    """Whether bytes begin with field 1 of a header, a short version such as "2.0"."""
    if len(start) < 3 or start[0] != 0x0A or not 1 <= start[1] <= 8:
        return False
    text = start[2 : 2 + start[1]]
    return bool(text) and text[:1].isdigit() and all(byte in b"0123456789." for byte in text)


def read(path: str | PathLike[str]) -> DumpFile:
    """The dump file at path; only its header is read. Raises FormatError."""
    try:
        file = os.open(path, OPEN_FLAGS)
        try:
            form, head, size = _head(file, path, os.read(file, _FIRST))
            if form == INLINE_FORM:
                return _read_inline(path, size)
        finally:
            os.close(file)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
    return _located(path, form, head, size)


def summary(path: str | PathLike[str]) -> DumpData:
    """Version, time, operator's name and attributes of the dump file at path, nothing else. Raises
    FormatError.
    """
    try:
        file = os.open(path, OPEN_FLAGS)
        try:
            start = os.read(file, _FIRST)
            quick = _quick_summary(start)
            if quick is not None:
                return quick
            form, head, size = _head(file, path, start)
            if form == INLINE_FORM:
                inline: DumpData = Decoder(_mapped(path, size).data, path).decode(SUMMARY)
                return inline
        finally:
            os.close(file)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
    header: DumpData = DumpData() if form == NANO else Decoder(head, path, base=8).decode(SUMMARY)
    return header


def _quick_summary(start: bytes) -> DumpData | None:
    """The same of a plain file whose header is usual and in its first page, in a third of the
    decoder's time; else None.
    """
    if len(start) < _SNIFF or not _version_field(start[8:_SNIFF]):
        return None
    at, stop = 8, 8 + int(_LENGTH.unpack_from(start)[0])
    if stop > len(start):
        return None
    version = op_name = ""
    time = 0
    try:
        while at < stop:
            key, value = start[at], start[at + 1]
            at += 2
            if value >= 0x80:
                value, at = varint(start, at - 1)
            if key == _TIME:
                time = value
                continue
            if key == _OP_NAME:
                op_name = start[at : at + value].decode()
            elif key == _VERSION:
                version = start[at : at + value].decode()
            elif key not in _ENTRIES:
                return None
            at += value
    except (IndexError, UnicodeDecodeError):
        return None
    return DumpData(version=version, dump_time=time, op_name=op_name) if at == stop else None


def _head(file: int, path: str | PathLike[str], start: bytes) -> tuple[str, bytes, int]:
    """Form, header (empty in the inline form) and size of an open file whose first page was
    read.
    """
    size = os.fstat(file).st_size
    form = _form(start[:_SNIFF], size)
    if form is None:
        raise FormatError(path, _refusal(start[:_SNIFF], size), offset=0)
    if form == INLINE_FORM:
        return form, b"", size
    length = _LENGTH.unpack_from(start)[0]
    if length > min(size - 8, MAX_HEADER):
        raise FormatError(
            path,
            f"a header of {length} bytes in a file of {size}; it is torn or no dump file",
            offset=0,
        )
    head = start[8 : 8 + length] + _more(file, 8 + length - len(start))
    if len(head) != length:
        raise FormatError(path, "became shorter while it was read", offset=8 + len(head))
    return form, head, size


def _more(file: int, count: int) -> bytes:
    """The next count bytes of an open file, fewer at its end."""
    parts = []
    while count > 0 and (part := os.read(file, count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _mapped(path: str | PathLike[str], size: int) -> Bytes:
    return np.memmap(path, np.uint8, "r", 0, (size,))


def _refusal(start: bytes, size: int) -> str:
    if size == 0:
        return "is empty"
    if len(start) > 8 and _version_field(start[8:]):
        return (
            f"a header of {_LENGTH.unpack_from(start)[0]} bytes in a file of {size}; it is torn "
            "or no dump file"
        )
    return "is no CANN dump file: neither a header length nor a header at its start"


def _located(path: str | PathLike[str], form: str, head: bytes, size: int) -> DumpFile:
    """A file of a prefixed form, its payloads placed behind the header."""
    version = 0
    if form == NANO:
        version, header = nano.decode(head, path)
    else:
        header = Decoder(head, path, base=8).decode(HEADER)
    start = 8 + len(head)
    spans = _place(header, _null(header, form, size - start), start, size)
    used = spans[-1].offset + spans[-1].length if spans else start
    return DumpFile(
        path=os.fspath(path),
        form=form,
        header=header,
        spans=spans,
        trailing=size - used,
        nano_version=version,
    )


def _null(header: DumpData, form: str, available: int) -> frozenset[int]:
    """Entries that have a size but no bytes: null addresses, when the sizes do not add up and other
    addresses are set.
    """
    entries = header.entries()
    if form == NANO or sum(entry.size for entry in entries) <= available:
        return frozenset()  # in nano files addresses are offsets, and 0 is the first
    null = {
        i
        for i, entry in enumerate(entries)
        if isinstance(entry, TensorEntry) and entry.address == 0
    }
    tensors = len(header.input) + len(header.output)
    return frozenset(null) if len(null) < tensors else frozenset()


def _place(header: DumpData, absent: frozenset[int], start: int, stop: int) -> tuple[Span, ...]:
    spans = []
    at = start
    for index, entry in enumerate(header.entries()):
        length = 0 if index in absent else max(0, min(entry.size, stop - at))
        spans.append(Span(at, length))
        at += length
    return tuple(spans)


def _read_inline(path: str | PathLike[str], size: int) -> DumpFile:
    header: DumpData = Decoder(_mapped(path, size).data, path).decode(INLINE)
    empty = Span(0, 0)
    spans = tuple(entry.data or empty for entry in header.entries())
    return DumpFile(path=os.fspath(path), form=INLINE_FORM, header=_stripped(header), spans=spans)


def _stripped(header: DumpData) -> DumpData:
    """The header without where its bytes lie, so that equal headers compare equal."""
    return _with_data(header, (None,) * len(header.entries()))


def _with_data(header: DumpData, data: Sequence[Any]) -> DumpData:
    replaced = [
        msgspec.structs.replace(entry, data=value)
        for entry, value in zip(header.entries(), data, strict=True)
    ]
    inputs, outputs, buffers = len(header.input), len(header.output), len(header.buffer)
    ends = (inputs, inputs + outputs, inputs + outputs + buffers)
    return msgspec.structs.replace(
        header,
        input=tuple(replaced[: ends[0]]),
        output=tuple(replaced[ends[0] : ends[1]]),
        buffer=tuple(replaced[ends[1] : ends[2]]),
        space=tuple(replaced[ends[2] :]),
    )


def parts(
    header: DumpData, payloads: Sequence[Any], *, form: str = PLAIN, nano_version: int = 0
) -> list[Any]:
    """Buffers whose concatenation is the file; payloads[i] are the bytes of header.entries()[i].

    A null-address tensor's payload is empty; sizes in the header are written as they are.
    """
    if form == INLINE_FORM:
        return encode(
            INLINE,
            _with_data(
                header,
                [memoryview(payload).cast("B") if len(payload) else None for payload in payloads],
            ),
        )
    head = [nano.encode(header, nano_version)] if form == NANO else encode(HEADER, header)
    return [
        _LENGTH.pack(sum(map(len, head))),
        *head,
        *(memoryview(payload).cast("B") for payload in payloads if len(payload)),
    ]


def write(
    path: str | PathLike[str],
    header: DumpData,
    payloads: Sequence[Any],
    *,
    form: str = PLAIN,
    nano_version: int = 0,
) -> None:
    """Write a dump file; reading it gives the same header and payloads, and a file read and written
    again is the same bytes.
    """
    with Path(path).open("wb") as file:
        file.writelines(parts(header, payloads, form=form, nano_version=nano_version))


def copy(source: DumpFile, path: str | PathLike[str]) -> None:
    """Write what was read from one file to another: the same bytes, but for those behind the last
    payload.
    """
    payloads = [source.payload(index) for index in range(len(source.spans))]
    write(path, source.header, payloads, form=source.form, nano_version=source.nano_version)
