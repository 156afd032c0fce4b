# SPDX-License-Identifier: Apache-2.0
"""A bounded protobuf wire codec for closed schemas: bytes <-> frozen records, unknown fields kept.

Only what dump headers need: varints, length-delimited fields, packed and unpacked repeated varints.
Groups are refused. Every length is checked against its enclosing message, nesting is bounded by the
schema, and the number of repeated items and the length of texts are bounded, so that memory stays
proportional to the bytes that are really there.
Layout of the wire: protobuf's published encoding page. Why not protobuf itself:
docs/formats-cann.md, "Measured".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec

from opscope.errors import FormatError

if TYPE_CHECKING:
    from os import PathLike

MAX_ITEMS = 65_536
MAX_TEXT = 16 << 20
MAX_RANK = 32  # devices have at most 25
_SIGN = 1 << 63
_WRAP = 1 << 64
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Span(msgspec.Struct, frozen=True):
    """Bytes of a file that were not read: their offset and length."""

    offset: int
    length: int


class Field(NamedTuple):
    """One field of a message; kind is uint, int, text, span, one (a message), many (messages) or
    dims (repeated uint64).
    """

    number: int
    name: str
    kind: str
    message: Message | None = None


class Message:
    """A message type: the record it becomes and its fields by ascending number.

    The record has one attribute for each field and one more, `unknown`, for the bytes of fields it
    does not name (lossy: they are dropped). A known field with another wire type is unknown too, as
    protobuf has it.
    """

    __slots__ = ("by_key", "fields", "lists", "lossy", "record")

    def __init__(
        self, record: type[Any], fields: tuple[Field, ...], *, lossy: bool = False
    ) -> None:
        self.record = record
        self.lossy = lossy
        self.fields = fields
        self.lists = tuple(field.name for field in fields if field.kind in ("many", "dims"))
        self.by_key: dict[int, tuple[str, str, Any]] = {}
        for field in fields:
            wire = _VARINT if field.kind in ("uint", "int") else _BYTES
            self.by_key[field.number << 3 | wire] = (field.kind, field.name, field.message)
            if field.kind == "dims":
                self.by_key[field.number << 3 | _VARINT] = ("dim", field.name, None)


def varint(data: Any, at: int) -> tuple[int, int]:
    """Value and next position; raises IndexError past the end of data or after ten bytes."""
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (_WRAP - 1), at
        shift += 7
    raise IndexError


class Decoder:
    """Decodes messages out of one buffer; base is the file offset of its first byte, for error
    messages.
    """

    def __init__(self, data: Any, path: str | PathLike[str], *, base: int = 0) -> None:
        self._data = data
        self._path = path
        self._base = base
        self._items = 0
        self._kept = 0

    def decode(self, message: Message, start: int = 0, end: int | None = None) -> Any:
        """Record of the message in data[start:end]; raises FormatError naming the file and
        offset.
        """
        data = self._data
        stop = len(data) if end is None else end
        values: dict[str, Any] = {}
        at = start
        while at < stop:
            begin = at
            try:
                key, value = data[at], 0
                at += 1
                if key >= 0x80:
                    key, at = varint(data, begin)
                if key & 5 == 0:  # a varint or a length
                    value = data[at]
                    at += 1
                    if value >= 0x80:
                        value, at = varint(data, at - 1)
            except IndexError:
                self._fail(begin, "a field of the header runs past its end")
            after = (
                at
                if key & 7 == _VARINT
                else at + (value if key & 7 == _BYTES else self._fixed(key, begin))
            )
            if after > stop:
                self._fail(begin, "a field of the header runs past its end")
            kind, name, nested = message.by_key.get(key, ("unknown", "unknown", None))
            if kind == "uint":
                values[name] = value
            elif kind == "one":
                values[name] = self.decode(nested, at, after)
            elif kind == "many":
                self._count(at)
                values.setdefault(name, []).append(self.decode(nested, at, after))
            elif kind == "unknown":
                if message.lossy:
                    at = after
                    continue
                self._bound(begin, after - begin)
                values.setdefault(name, bytearray()).extend(data[begin:after])
            else:
                self._value(kind, name, values, (value, at, after))
            at = after
        return self._record(message, values)

    def _value(
        self, kind: str, name: str, values: dict[str, Any], where: tuple[int, int, int]
    ) -> None:
        """Keep one value of the other kinds; where is its varint (or length) and its extent."""
        value, at, after = where
        if kind == "int":
            values[name] = value - _WRAP if value >= _SIGN else value
        elif kind == "text":
            self._bound(at, value)
            values[name] = bytes(self._data[at:after]).decode("utf-8", "surrogateescape")
        elif kind == "span":
            values[name] = Span(self._base + at, value)
        else:
            dims = values.setdefault(name, [])
            dims.extend((value,) if kind == "dim" else self._dims(at, after))
            if len(dims) > MAX_RANK:
                self._fail(at, f"a shape of more than {MAX_RANK} dimensions")

    def _dims(self, at: int, stop: int) -> list[int]:
        if stop - at > MAX_RANK * 10:
            self._fail(at, f"a shape of more than {MAX_RANK} dimensions")
        dims: list[int] = []
        while at < stop:
            try:
                value, at = varint(self._data, at)
            except IndexError:
                self._fail(at, "a dimension runs past the end of the file")
            dims.append(value)
        if at > stop:
            self._fail(stop, "a dimension runs past its list")
        return dims

    @staticmethod
    def _record(message: Message, values: dict[str, Any]) -> Any:
        for name in message.lists:
            if name in values:
                values[name] = tuple(values[name])
        if "unknown" in values:
            values["unknown"] = bytes(values["unknown"])
        return message.record(**values)

    def _count(self, at: int) -> None:
        self._items += 1
        if self._items > MAX_ITEMS:
            self._fail(at, f"more than {MAX_ITEMS} entries in the header")

    def _bound(self, at: int, length: int) -> None:
        self._kept += length
        if self._kept > MAX_TEXT:
            self._fail(at, f"texts and unknown fields of more than {MAX_TEXT} bytes in the header")

    def _fixed(self, key: int, at: int) -> int:
        if key & 7 not in (_FIXED64, _FIXED32):
            self._fail(at, f"wire type {key & 7} in the header; not a dump file")
        return 8 if key & 7 == _FIXED64 else 4

    def _fail(self, at: int, reason: str) -> NoReturn:
        raise FormatError(self._path, reason, offset=self._base + at)


def _varint_bytes(value: int) -> bytes:
    if 0 <= value < 0x80:
        return bytes((value,))
    value &= _WRAP - 1
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _delimited(number: int, parts: list[Any]) -> list[Any]:
    length = sum(map(len, parts))
    return [_varint_bytes(number << 3 | _BYTES) + _varint_bytes(length), *parts]


def encode(message: Message, record: Any) -> list[Any]:
    """Buffers whose concatenation is the message: ascending field numbers, zeros and empty texts
    left out, dims packed.

    A sub-message is written when it is not None, even if empty; fields of kind span take any buffer
    and are not copied.
    """
    parts: list[Any] = []
    for number, name, kind, nested in message.fields:
        value = getattr(record, name)
        if kind == "one":
            if value is not None:
                parts += _delimited(number, encode(nested, value))  # type: ignore[arg-type]
        elif kind == "many":
            for item in value:
                parts += _delimited(number, encode(nested, item))  # type: ignore[arg-type]
        elif value:
            parts += _plain(number, kind, value)
    if record.unknown:
        parts.append(record.unknown)
    return parts


def _plain(number: int, kind: str, value: Any) -> list[Any]:
    if kind in ("uint", "int"):
        return [_varint_bytes(number << 3 | _VARINT) + _varint_bytes(value)]
    if kind == "dims":
        return _delimited(number, [b"".join(map(_varint_bytes, value))])
    if kind == "text":
        return _delimited(number, [value.encode("utf-8", "surrogateescape")])
    return _delimited(number, [value])
