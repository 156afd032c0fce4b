# SPDX-License-Identifier: Apache-2.0
"""`.core` files of a device exception (dump_scene aic_err_detail_dump): memory, on-chip buffers and
registers of the cores.

An ELF64 file of type ET_CORE with sections only. Section types are 0x80000000 and: 1 global memory,
2 local memory of a core, 3 registers of a core, 4 device, 5 and 6 what the sections of 1 and 2 are,
7 and 8 the kernel's binary as loaded and as a file, 9 its description, 10 its name. Structures are
little-endian with natural alignment; no real file was at hand to check that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from opscope.errors import FormatError

(
    _GLOBAL,
    _LOCAL,
    _REGISTERS,
    _DEVICE,
    _ABOUT_GLOBAL,
    _ABOUT_LOCAL,
    _LOADED,
    _BINARY,
    _DESCRIPTION,
    _KERNEL,
) = range(0x80000001, 0x8000000B)
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_BLOCK = struct.Struct(
    "<QQIHH"
)  # address, size, section, type, reserved; then dim, padding and 25 dimensions
_BLOCK_SIZE, _MAX_RANK = 232, 25
_PART = struct.Struct("<QIIII")
_MAX_SECTIONS = 1 << 16
_MAX_ABOUT = 1 << 24  # bytes of one section of structures
_FAILED = 1 << 63
_ET_CORE = 4
_MEMORIES = {
    1: "L0A",
    2: "L0B",
    3: "L0C",
    4: "UB",
    5: "L1",
    10: "data cache",
    11: "instruction cache",
}
_VALUES = (16, 32)  # bytes of a register's value on 910B and A3, and on Ascend 950
_FIRST_VECTOR = {16: 25, 32: 36}  # number of the first vector core


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Global memory that was copied: type is a DfxTensorType (2 input, 3 output, 4 workspace, 7
    tiling, 101 arguments, …).
    """

    type: int
    address: int
    size: int
    offset: int
    stored: int
    copied: bool
    shape: tuple[int, ...] = ()


class Local(msgspec.Struct, frozen=True, kw_only=True):
    """On-chip memory of one core."""

    core: str
    memory: str
    size: int
    offset: int


class Registers(msgspec.Struct, frozen=True, kw_only=True):
    """Registers of one core, AIC 3 or AIV 7, by their address; those that could not be read are
    left out.
    """

    core: str
    number: int
    values: dict[int, int]


class CoreFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a .core file holds; loaded, binary and description are offset and size in the file."""

    path: str
    kernel: str = ""
    device: int | None = None
    value_bytes: int = 16
    blocks: tuple[Block, ...] = ()
    locals: tuple[Local, ...] = ()
    registers: tuple[Registers, ...] = ()
    loaded: tuple[int, int] | None = None
    binary: tuple[int, int] | None = None
    description: tuple[int, int] | None = None


class _Section(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the section table."""

    name: str
    type: int
    address: int
    offset: int
    size: int
    link: int
    info: int


def is_corefile(head: bytes) -> bool:
    """Whether the first bytes of a file are those of an ELF64 core."""
    return (
        len(head) >= _HEADER.size
        and head[:6] == b"\x7fELF\x02\x01"
        and _HEADER.unpack_from(head)[1] == _ET_CORE
    )


def read(path: Path) -> CoreFile:
    """The tables of a .core file; the memory itself is read by content. FormatError for any other
    file and a torn one.
    """
    try:
        with path.open("rb") as stream:
            return _read(path, stream)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error


def content(path: Path, span: tuple[int, int]) -> bytes:
    """Bytes of a place in the file, fewer where the file is torn."""
    with path.open("rb") as stream:
        stream.seek(span[0])
        return stream.read(span[1])


def _read(path: Path, stream: BinaryIO) -> CoreFile:
    head = stream.read(_HEADER.size)
    if not is_corefile(head):
        raise FormatError(path, "is no core file of a device")
    sections = _sections(path, stream, head)
    widths = {
        _value_bytes(_bytes(stream, one)) for one in sections if one.type == _REGISTERS and one.size
    }
    value_bytes = 32 if widths == {32} else 16
    loaded, binary, description = (
        next(((one.offset, one.size) for one in sections if one.type == kind), None)
        for kind in (_LOADED, _BINARY, _DESCRIPTION)
    )
    device = next((_bytes(stream, one) for one in sections if one.type == _DEVICE), b"")
    name = next((_bytes(stream, one) for one in sections if one.type == _KERNEL), b"")
    return CoreFile(
        path=str(path),
        kernel=name[4 : 4 + int.from_bytes(name[:4], "little")]
        .rstrip(b"\0")
        .decode("utf-8", "replace"),
        device=struct.unpack_from("<I", device, 32)[0] if len(device) >= 36 else None,
        value_bytes=value_bytes,
        blocks=tuple(_blocks(stream, sections)),
        locals=tuple(_locals(stream, sections, value_bytes)),
        registers=tuple(_registers(stream, sections, value_bytes)),
        loaded=loaded,
        binary=binary,
        description=description,
    )


def _sections(path: Path, stream: BinaryIO, head: bytes) -> list[_Section]:
    fields = _HEADER.unpack(head)
    table, row, count, names = fields[6], fields[11], fields[12], fields[13]
    end = stream.seek(0, 2)
    if row != _SECTION.size or not 0 < count < _MAX_SECTIONS or table + row * count > end:
        raise FormatError(
            path, "its section table is not in the file: it is torn", offset=min(table, end)
        )
    stream.seek(table)
    rows = [_SECTION.unpack_from(data) for data in (stream.read(row) for _ in range(count))]
    texts = b""
    if names < count and rows[names][5] <= _MAX_ABOUT:
        stream.seek(min(rows[names][4], end))
        texts = stream.read(rows[names][5])
    return [
        _Section(
            name=texts[name : texts.find(b"\0", name)].decode("ascii", "replace")
            if name < len(texts)
            else "",
            type=kind,
            address=address,
            offset=min(offset, end),
            size=size,
            link=link,
            info=info,
        )
        for name, kind, _, address, offset, size, link, info, _, _ in rows
    ]


def _bytes(stream: BinaryIO, section: _Section) -> bytes:
    stream.seek(section.offset)
    return stream.read(min(section.size, _MAX_ABOUT))


def _blocks(stream: BinaryIO, sections: list[_Section]) -> Iterator[Block]:
    for about in (one for one in sections if one.type == _ABOUT_GLOBAL):
        data = _bytes(stream, about)
        for at in range(0, len(data) - _BLOCK_SIZE + 1, _BLOCK_SIZE):
            address, size, section, kind, _ = _BLOCK.unpack_from(data, at)
            held = (
                sections[section]
                if section < len(sections) and sections[section].type == _GLOBAL
                else None
            )
            rank = (
                min(struct.unpack_from("<I", data, at + 24)[0], _MAX_RANK)
                if kind in (1, 2, 3, 12)
                else 0
            )
            yield Block(
                type=kind,
                address=address,
                size=size & ~_FAILED,
                offset=held.offset if held else 0,
                stored=held.size if held else 0,
                copied=not size & _FAILED and held is not None,
                shape=struct.unpack_from(f"<{rank}Q", data, at + 32),
            )


def _number(section: _Section) -> int:
    last = section.name.rpartition(".")[2]
    return int(last) if last.isdecimal() and len(last) < 6 else section.info


def _core(number: int, value_bytes: int) -> str:
    first = _FIRST_VECTOR[value_bytes]
    return f"AIV {number - first}" if number >= first else f"AIC {number}"


def _locals(stream: BinaryIO, sections: list[_Section], value_bytes: int) -> Iterator[Local]:
    for about in (one for one in sections if one.type == _ABOUT_LOCAL):
        data = _bytes(stream, about)
        for at in range(0, len(data) - _PART.size + 1, _PART.size):
            size, section, _, memory, _ = _PART.unpack_from(data, at)
            offset = sections[section].offset if section < len(sections) else 0
            yield Local(
                core=_core(_number(about), value_bytes),
                memory=_MEMORIES.get(memory, f"memory {memory}"),
                size=size,
                offset=offset,
            )


def _registers(stream: BinaryIO, sections: list[_Section], value_bytes: int) -> Iterator[Registers]:
    for section in (one for one in sections if one.type == _REGISTERS):
        rows = _rows(_bytes(stream, section), value_bytes)
        values = {
            address: value
            for address, invalid, width, value in rows
            if not invalid and 0 < width <= value_bytes
        }
        yield Registers(
            core=_core(_number(section), value_bytes), number=_number(section), values=values
        )


def _rows(data: bytes, value_bytes: int) -> Iterator[tuple[int, int, int, int]]:
    """Address, whether it could not be read, width in bytes, value."""
    row = 16 + value_bytes
    for at in range(0, len(data) - row + 1, row):
        address, invalid, width = struct.unpack_from("<QB6xB", data, at)
        yield (
            address,
            invalid,
            width,
            int.from_bytes(data[at + 16 : at + 16 + min(width, value_bytes)], "little"),
        )


def _value_bytes(data: bytes) -> int:
    """Bytes of each value: of the two layouts the one in which every row has a width that fits and
    an address of registers.
    """
    for size in _VALUES:
        rows = list(_rows(data, size))
        if (
            rows
            and len(data) % (16 + size) == 0
            and all(0 < width <= size and 0 < address < 1 << 24 for address, _, width, _ in rows)
        ):
            return size
    return _VALUES[0]
