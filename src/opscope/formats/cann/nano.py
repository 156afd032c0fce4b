# SPDX-License-Identifier: Apache-2.0
"""The nano form of a dump file: a tag-length-value header instead of protobuf.

    u64 head length | head | input payloads | output payloads      little-endian, no padding
    head: u32 0x5A5A5A5A, u32 version
          u32 tag 4, u32 length, { u32 inputs, each  i32 data_type, format, address_type;
                                   u64 address, offset, size; u32 list length; list }
          u32 tag 5, u32 length, { u32 outputs, each i32 data_type, format, address_type, original
          index,
                                   original data_type, original format; u64 address, offset, size;
                                   u32 list length; list }
    list: [u32 tag 0, u32 bytes, u64 shape…] [tag 1: original shape] [tag 2: original name, outputs
    only]

A member of a list, or a section, that is absent takes no bytes. Element types are GE's numbers; the
records hold proto numbers. `unknown` of a header read from this form holds the tags of absent
sections, and of an original operator one zero byte where an empty name was written, so that the
same bytes can be written again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NoReturn

from opscope.errors import FormatError
from opscope.formats.cann.dtypes import from_ge, to_ge
from opscope.formats.cann.message import DumpData, OriginalOp, Shape, TensorEntry
from opscope.formats.cann.wire import MAX_ITEMS, MAX_RANK, MAX_TEXT

if TYPE_CHECKING:
    from os import PathLike

MAGIC = 0x5A5A5A5A
_INPUTS, _OUTPUTS = 4, 5
_SHAPE, _ORIGINAL_SHAPE, _ORIGINAL_NAME = 0, 1, 2
_INPUT = struct.Struct("<iiiQQQI")
_OUTPUT = struct.Struct("<iiiiiiQQQI")
_PAIR = struct.Struct("<II")
_BASE = 8  # where the head begins in a file


class _Head:
    """A cursor over the head; every read is checked against the innermost length."""

    def __init__(self, data: bytes, path: str | PathLike[str], base: int) -> None:
        self.data = data
        self.path = path
        self.base = base
        self.at = 0
        self.stop = len(data)

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        if layout.size > self.stop - self.at:
            self.fail("the head ends inside an entry")
        values: tuple[int, ...] = layout.unpack_from(self.data, self.at)
        self.at += layout.size
        return values

    def member(self, tag: int, unit: int) -> bytes | None:
        """Bytes of the next member if it has this tag, else None and nothing is consumed."""
        if self.stop - self.at < _PAIR.size:
            return None
        own_tag, length = _PAIR.unpack_from(self.data, self.at)
        if own_tag != tag:
            return None
        if length > self.stop - self.at - _PAIR.size or length % unit:
            self.fail(f"a member of {length} bytes does not fit its list")
        self.at += _PAIR.size + length
        return self.data[self.at - length : self.at]

    def fail(self, reason: str) -> NoReturn:
        raise FormatError(self.path, reason, offset=self.base + self.at)


def decode(head: bytes, path: str | PathLike[str]) -> tuple[int, DumpData]:
    """Version and header of a nano head. Raises FormatError."""
    cursor = _Head(head, path, _BASE)
    magic, version = cursor.take(_PAIR)
    if magic != MAGIC:
        cursor.fail("no nano magic; not a nano dump")
    inputs = _section(cursor, _INPUTS)
    outputs = _section(cursor, _OUTPUTS)
    if cursor.at != cursor.stop:
        cursor.fail("bytes after the last section of the head")
    absent = bytes(
        tag for tag, entries in ((_INPUTS, inputs), (_OUTPUTS, outputs)) if entries is None
    )
    return version, DumpData(input=inputs or (), output=outputs or (), unknown=absent)


def _section(cursor: _Head, tag: int) -> tuple[TensorEntry, ...] | None:
    body = cursor.member(tag, 1)
    if body is None:
        return None
    inner = _Head(body, cursor.path, cursor.base + cursor.at - len(body))
    (count,) = inner.take(struct.Struct("<I"))
    if count > min(MAX_ITEMS, len(body) // _INPUT.size):
        inner.fail(f"{count} tensors do not fit in {len(body)} bytes")
    entries = tuple(_entry(inner, tag) for _ in range(count))
    if inner.at != inner.stop:
        inner.fail("bytes after the last tensor of a section")
    return entries


def _entry(cursor: _Head, tag: int) -> TensorEntry:
    fixed = cursor.take(_INPUT if tag == _INPUTS else _OUTPUT)
    address, offset, size, length = fixed[-4:]
    if length > cursor.stop - cursor.at:
        cursor.fail("a tensor's list runs past its section")
    members = _Head(
        cursor.data[cursor.at : cursor.at + length], cursor.path, cursor.base + cursor.at
    )
    cursor.at += length
    shape, original_shape = _dims(members, _SHAPE), _dims(members, _ORIGINAL_SHAPE)
    name = members.member(_ORIGINAL_NAME, 1) if tag == _OUTPUTS else None
    if members.at != members.stop:
        members.fail("an unknown member in a tensor's list")
    if name is not None and len(name) > MAX_TEXT:
        members.fail(f"a name of {len(name)} bytes")
    return TensorEntry(
        data_type=from_ge(fixed[0]),
        format=fixed[1],
        address_type=fixed[2],
        shape=shape,
        original_shape=original_shape,
        original_op=_original(fixed, name) if tag == _OUTPUTS else None,
        address=address,
        offset=offset,
        size=size,
    )


def _original(fixed: tuple[int, ...], name: bytes | None) -> OriginalOp:
    return OriginalOp(
        name=(name or b"").decode("utf-8", "surrogateescape"),
        output_index=fixed[3],
        data_type=from_ge(fixed[4]),
        format=fixed[5],
        unknown=b"\0" if name == b"" else b"",
    )


def _dims(cursor: _Head, tag: int) -> Shape | None:
    body = cursor.member(tag, 8)
    if body is None:
        return None
    if len(body) > 8 * MAX_RANK:
        cursor.fail(f"a shape of more than {MAX_RANK} dimensions")
    return Shape(dim=struct.unpack(f"<{len(body) // 8}Q", body))


def encode(header: DumpData, version: int) -> bytes:
    """Head of the nano form; the header's fields the form has no place for are not written."""
    inputs = b"".join(_packed(entry, output=False) for entry in header.input)
    outputs = b"".join(_packed(entry, output=True) for entry in header.output)
    head = _PAIR.pack(MAGIC, version)
    for tag, entries, body in ((_INPUTS, header.input, inputs), (_OUTPUTS, header.output, outputs)):
        if tag in header.unknown and not entries:
            continue
        head += _PAIR.pack(tag, len(body) + 4) + struct.pack("<I", len(entries)) + body
    return head


def _packed(entry: TensorEntry, *, output: bool) -> bytes:
    members = _shape_bytes(_SHAPE, entry.shape) + _shape_bytes(
        _ORIGINAL_SHAPE, entry.original_shape
    )
    plain = (to_ge(entry.data_type), entry.format, entry.address_type)
    location = (entry.address, entry.offset, entry.size)
    if not output:
        return _INPUT.pack(*plain, *location, len(members)) + members
    original = entry.original_op or OriginalOp()
    if original.name or original.unknown:
        name = original.name.encode("utf-8", "surrogateescape")
        members += _PAIR.pack(_ORIGINAL_NAME, len(name)) + name
    back = (original.output_index, to_ge(original.data_type), original.format)
    return _OUTPUT.pack(*plain, *back, *location, len(members)) + members


def _shape_bytes(tag: int, shape: Shape | None) -> bytes:
    if shape is None:
        return b""
    return _PAIR.pack(tag, 8 * len(shape.dim)) + struct.pack(f"<{len(shape.dim)}Q", *shape.dim)
