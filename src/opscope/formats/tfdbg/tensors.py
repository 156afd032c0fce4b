# SPDX-License-Identifier: Apache-2.0
"""What a dump keeps of a tensor: all of it, or the few numbers of a mode of health.

A number of a mode becomes a column only where it says what the column does. CURT_HEALTH tells that
some element is NaN or infinite, and not which: such a row has no counts. SHAPE keeps six sizes at
most: of a tensor of more dimensions the shape is not known. Of a full tensor the place in its file
is kept, and its values are read when they are asked for.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError
from opscope.formats.foreign import UNKNOWN
from opscope.formats.mindspore.pb import Wire
from opscope.formats.tfdbg.files import read_at
from opscope.narrow import as_type
from opscope.run.dtypes import DType, find_dtype

CURT, CONCISE, FULL_HEALTH, SHAPE, FULL = 2, 3, 4, 5, 7
_NAMES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "string",
    8: "complex64",
    9: "int64",
    10: "bool",
    11: "int8",
    12: "uint8",
    13: "int32",
    14: "bfloat16",
    15: "int16",
    16: "uint16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
    24: "float8_e5m2",
    25: "float8_e4m3fn",
    26: "float8_e4m3fnuz",
    27: "float8_e4m3b11fnuz",
    28: "float8_e5m2fnuz",
}
_FIXED = {5: "<f4", 6: "<f8", 9: "<f4", 12: "<f8"}  # fields of floats and their complex pairs
_VARINTS = frozenset({7, 10, 11, 13, 16, 17})
_HALVES = 13  # the bits of float16 and bfloat16, as numbers
_BYTES = 18
_MOST_SIZES = 6  # of SHAPE
_DEEPEST = 254
_LARGEST_FILL = 64 << 20  # bytes that one number may stand for
_HIGHEST = 1 << 62


class Kept(msgspec.Struct, frozen=True):
    """A tensor of a dump: the columns of its row, where its values lie (offset and length in the
    file, None where there are none), and a number that equal values share.
    """

    columns: dict[str, Any]
    place: tuple[int, int] | None = None
    content: int | None = None
    unsound: bool = False  # that some element is not finite, and not which


class _Proto(msgspec.Struct, frozen=True):
    code: int
    shape: tuple[int, ...]
    content: bytes | None
    numbers: tuple[tuple[int, Any], ...]


def kept(message: Wire, mode: int) -> Kept | None:
    """What a TensorProto of a dump of this mode says; None where it says nothing."""
    proto = _read(message)
    if not proto.code:
        return None
    if mode == FULL:
        return _whole(message, proto)
    if mode not in (CURT, CONCISE, FULL_HEALTH, SHAPE):
        return None
    return _told(mode, _values(proto, message).ravel().tolist())


def _whole(message: Wire, proto: _Proto) -> Kept | None:
    name = _NAMES.get(proto.code)
    if name is None:
        return None
    columns: dict[str, Any] = {"dtype": name, "shape": proto.shape}
    if name == "string":
        return Kept(columns)
    return Kept(
        columns,
        (message.base, len(message.data)),
        hash((proto.code, proto.shape, _content(proto, message))),
    )


def _content(proto: _Proto, message: Wire) -> bytes:
    """The elements' bytes, however they were written down; of what cannot be read what stands
    there.
    """
    if proto.content is not None:
        return proto.content
    try:
        return _values(proto, message).tobytes()
    except FormatError:
        return message.data


def _told(mode: int, numbers: list[float]) -> Kept | None:
    """The row of a mode that keeps a few numbers, the first of which is the tensor's own."""
    least = {CURT: 2, CONCISE: 5, FULL_HEALTH: 11, SHAPE: 10}[mode]
    if len(numbers) < least or not all(
        math.isfinite(each) and abs(each) < _HIGHEST for each in numbers
    ):
        return None
    whole = [int(each) for each in numbers]
    if mode == CURT:
        sound = {"nan": 0, "pos_inf": 0, "neg_inf": 0}
        return Kept({"dtype": UNKNOWN, **({} if whole[1] else sound)}, unsound=bool(whole[1]))
    if mode == CONCISE:
        names: tuple[str, ...] = ("size", "neg_inf", "pos_inf", "nan")
        return Kept({"dtype": UNKNOWN, **dict(zip(names, whole[1:5], strict=True))})
    dtype = _NAMES.get(whole[2 if mode == FULL_HEALTH else 1], UNKNOWN)
    if mode == FULL_HEALTH:
        names = ("size", "neg_inf", "pos_inf", "nan", "neg", "zero", "pos")
        shape: tuple[int, ...] | None = () if whole[3] == 0 else None
        return Kept({"dtype": dtype, "shape": shape, **dict(zip(names, whole[4:11], strict=True))})
    rank = whole[2]
    known = 0 <= rank <= _MOST_SIZES and min(whole[4 : 4 + rank], default=0) >= 0
    return Kept(
        {
            "dtype": dtype,
            "shape": tuple(whole[4 : 4 + rank]) if known else None,
            "size": whole[3],
        }
    )


def load_value(path: Path, key: str, true: DType | None) -> Array:  # noqa: ARG001 - the signature of all loaders
    """The elements of a tensor, whose key is its place in the file; FormatError where they are not
    there.
    """
    offset, _, length = key.partition("+")
    if not (offset.isdigit() and length.isdigit()):
        raise FormatError(path, f"{key[:40]!r} is no place of a tensor")
    message = Wire(read_at(path, int(offset), int(length)), str(path), int(offset))
    return _values(_read(message), message)


def _read(message: Wire) -> _Proto:
    code, content = 0, None
    shape: tuple[int, ...] = ()
    numbers = []
    for number, kind, value in message.fields():
        if number == 1 and kind == 0:
            code = value
        elif number == 2 and kind == 2:
            shape = _shape(value)
        elif number == 4 and kind == 2:
            content = value.data
        elif number in _FIXED or number in _VARINTS or number == _BYTES:
            numbers.append((number, value))
    return _Proto(code, shape, content or None, tuple(numbers))


def _shape(message: Wire) -> tuple[int, ...]:
    sizes = []
    for number, kind, value in message.fields():
        if number == 2 and kind == 2:
            sizes.append(next((size for field, _, size in value.fields() if field == 1), 0))
            if len(sizes) > _DEEPEST or not isinstance(sizes[-1], int) or sizes[-1] >= _HIGHEST:
                raise message.fail(0, "a shape that no tensor has")
    return tuple(sizes)


def _values(proto: _Proto, message: Wire) -> Array:
    name = _NAMES.get(proto.code, "")
    known = find_dtype(name)
    if known is None or name == "string":
        raise message.fail(0, f"no values of type {proto.code} are read")
    dtype, count = known.to_numpy(), math.prod(proto.shape)
    if proto.content is not None:
        if len(proto.content) != count * dtype.itemsize:
            raise message.fail(0, f"{len(proto.content)} bytes for a tensor of {count} elements")
        return np.frombuffer(proto.content, dtype).reshape(proto.shape)
    given = _given(proto, dtype, message)
    if len(given) > count or (len(given) == 0 and count):
        raise message.fail(0, f"{len(given)} numbers for a tensor of {count} elements")
    if len(given) < count:  # the last of them stands for the rest
        if count * dtype.itemsize > _LARGEST_FILL:
            raise message.fail(0, f"{len(given)} numbers for a tensor of {count} elements")
        given = np.concatenate([given, np.broadcast_to(given[-1:], count - len(given))])
    return given.reshape(proto.shape)


def _given(proto: _Proto, dtype: np.dtype[Any], message: Wire) -> Array:
    """The numbers that stand in fields of their own."""
    parts: list[Array] = []
    for number, value in proto.numbers:
        if number in _FIXED and isinstance(value, Wire):
            part = np.frombuffer(value.data[: len(value.data) // 4 * 4], np.uint8)
            if len(part) % np.dtype(_FIXED[number]).itemsize:
                raise message.fail(0, "numbers that are cut short")
            parts.append(part.view(_FIXED[number]))
        elif number in _VARINTS and (number != _HALVES or dtype.itemsize == 2):
            parts.append(_integers(number, value, dtype))
        elif isinstance(value, Wire) and dtype.itemsize == 1:
            parts.append(np.frombuffer(value.data, np.uint8).view(dtype))
        else:
            raise message.fail(0, f"numbers of another type than {dtype}")
    if not parts:
        return np.zeros(0, dtype)
    if dtype.kind != "c":
        return np.concatenate([as_type(part, dtype) for part in parts])
    joined = np.concatenate(parts)
    if len(joined) % 2:
        raise message.fail(0, "half of a complex number")
    return np.ascontiguousarray(joined).view(dtype)


def _integers(number: int, value: Any, dtype: np.dtype[Any]) -> Array:
    listed = [value] if isinstance(value, int) else list(integers(value))
    if number == _HALVES:
        return np.array([each & 0xFFFF for each in listed], np.uint16).view(dtype)
    bits = np.array(listed, np.uint64)
    return bits if number in (16, 17) else bits.view(np.int64)


def integers(message: Wire) -> list[int]:
    """Integers that were packed into one field."""
    values, at = [], 0
    while at < len(message.data):
        value, at = message.varint(at)
        values.append(value)
    return values
