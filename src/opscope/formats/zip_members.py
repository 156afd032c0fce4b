# SPDX-License-Identifier: Apache-2.0
"""The members of a zip whose bytes are at hand: where each lies. For files that hold few members
and are opened by the thousand.

Layout: APPNOTE.TXT 6.3 of PKWARE: a directory at the end, found by its end record, whose 64-bit
form comes before it.
"""

from __future__ import annotations

import mmap
import struct

import msgspec

Data = bytes | mmap.mmap
MOST = 1 << 20  # members
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_COMMENT = 0xFFFF
_IN_64 = 0xFFFFFFFF


class Member(msgspec.Struct, frozen=True):
    """One member: where its header lies, the bytes of its content, and whether they lie there as
    they are.
    """

    header: int
    size: int
    plain: bool


def members_of(data: Data) -> dict[str, Member]:
    """Members by name, in the order of the directory; ValueError, which says why, where the bytes
    are no whole zip.
    """
    start, stop = _directory(data)
    members: dict[str, Member] = {}
    while start < stop:
        if start + _ENTRY.size > stop:
            raise ValueError("its directory is cut short")
        entry = _ENTRY.unpack_from(data, start)
        name_at = start + _ENTRY.size
        extra_at = name_at + entry[10]
        end = extra_at + entry[11]
        start = end + entry[12]
        if entry[0] != b"PK\x01\x02" or start > stop:
            raise ValueError("its directory is damaged")
        packed, size, header = entry[8], entry[9], entry[16]
        if _IN_64 in (packed, size, header):
            packed, size, header = _long(data[extra_at:end], (packed, size, header))
        if len(members) >= MOST:
            raise ValueError(f"more than {MOST} members")
        plain = entry[4] == 0 and not entry[3] & 1 and packed == size
        members[data[name_at:extra_at].decode("utf-8", "replace")] = Member(header, size, plain)
    return members


def _directory(data: Data) -> tuple[int, int]:
    """Where the directory begins and ends."""
    at = _end_record(data)
    size, start = _END.unpack_from(data, at)[5:7]
    if at >= _LOCATOR.size and data[at - _LOCATOR.size : at - _LOCATOR.size + 4] == b"PK\x06\x07":
        at = _LOCATOR.unpack_from(data, at - _LOCATOR.size)[2]
        if at + _END_64.size > len(data) or data[at : at + 4] != b"PK\x06\x06":
            raise ValueError("its end record of 64 bits is missing")
        size, start = _END_64.unpack_from(data, at)[8:10]
    if start + size > at:
        raise ValueError("its directory does not lie before its end")
    return start, start + size


def _end_record(data: Data) -> int:
    """Where the end record lies: the last whose comment ends with the file, as a comment may hold
    the same bytes; else the last.
    """
    last = len(data) - _END.size
    fitting = -1
    at = data.rfind(b"PK\x05\x06", max(0, last - _COMMENT))
    while at >= 0:
        if at <= last:
            fitting = max(fitting, at)
            if at + _END.size + _END.unpack_from(data, at)[7] == len(data):
                return at
        at = data.rfind(b"PK\x05\x06", max(0, last - _COMMENT), at + 3)
    if fitting < 0:
        raise ValueError("its end record is missing")
    return fitting


def _long(extra: bytes, fields: tuple[int, int, int]) -> tuple[int, int, int]:
    """Packed size, size and place of a member, those that need 64 bits taken from the extra
    fields.
    """
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        at += 4
        if kind == 1:
            numbers = iter(struct.unpack_from(f"<{min(length, len(extra) - at) // 8}Q", extra, at))
            size, packed, header = (
                next(numbers, _IN_64) if field == _IN_64 else field
                for field in (fields[1], fields[0], fields[2])
            )
            return packed, size, header
        at += length
    return fields


def content_of(data: Data, member: Member) -> int:
    """Where the content of a plain member begins; ValueError where no such member lies there
    whole.
    """
    if (
        member.header + _LOCAL.size > len(data)
        or data[member.header : member.header + 4] != b"PK\x03\x04"
    ):
        raise ValueError("is not where the directory says")
    begin: int = member.header + _LOCAL.size + sum(_LOCAL.unpack_from(data, member.header)[9:11])
    if begin + member.size > len(data):
        raise ValueError("is cut short")
    return begin
