# SPDX-License-Identifier: Apache-2.0
"""Writes .core files as the device's exception dump does in its detailed scene."""

from __future__ import annotations

import struct
from pathlib import Path

KIND = 0x80000000


def section(
    name: str, kind: int, data: bytes, *, address: int = 0, link: int = 0, info: int = 0
) -> tuple[str, int, bytes, int, int, int]:
    return name, KIND + kind, data, address, link, info


def block(
    address: int,
    size: int,
    at: int,
    kind: int,
    shape: tuple[int, ...] = (),
    *,
    failed: bool = False,
) -> bytes:
    """One entry of .ascend.auxinfo.global."""
    dims = struct.pack("<I4x25Q", len(shape), *shape, *[0] * (25 - len(shape)))
    return struct.pack("<QQIHH", address, size | (1 << 63 if failed else 0), at, kind, 0) + dims


def register(
    address: int, value: int, *, width: int = 4, value_bytes: int = 16, invalid: int = 0
) -> bytes:
    return struct.pack("<QB6xB", address, invalid, width) + value.to_bytes(value_bytes, "little")


def write(path: Path, sections: list[tuple[str, int, bytes, int, int, int]]) -> Path:
    """The file; section 0 is the empty one, the names come last."""
    names = b"\0"
    rows, body = [(0,) * 10], b""
    for name, kind, data, address, link, info in [*sections, (".shstrtab", 3, b"", 0, 0, 0)]:
        at = len(names)
        names += name.encode() + b"\0"
        content = names if name == ".shstrtab" else data
        body += bytes(-len(body) % 16)
        rows.append((at, kind, 0, address, 64 + len(body), len(content), link, info, 16, 0))
        body += content
    body += bytes(-len(body) % 16)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + bytes(9),
        4,
        0x1029,
        1,
        0,
        0,
        64 + len(body),
        0,
        64,
        0,
        0,
        64,
        len(rows),
        len(rows) - 1,
    )
    path.write_bytes(head + body + b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in rows))
    return path
