# SPDX-License-Identifier: Apache-2.0
"""Bytes of a dump <-> NumPy elements, for every element type whose elements the formats define.

Types that NumPy or opscope.narrow know keep their own dtype and are views of the bytes. The others
become the next type that
holds each value exactly: complex32 complex64, HiFloat8 float32, int4/uint1/int2/uint2 int8 or
uint8, float4_e2m1 float32. Packed types lie low bits first (two int4 in a byte: low nibble first;
no reference tool reads them), except uint1, whose bits lie most significant first as msaccucmp
unpacks them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from opscope import narrow
from opscope.errors import MissingValueError
from opscope.formats import hifloat8

if TYPE_CHECKING:
    from opscope.arrays import Array, Bytes
    from opscope.formats.cann.dtypes import ElementType

_PACKED = frozenset(("int4", "int2", "uint2", "float4_e2m1"))
_NIBBLES = np.array(
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0],
    np.float32,
)


def dtype_of(kind: ElementType) -> np.dtype[Any] | None:
    """The dtype whose elements lie in the file as they are, or None where they must be decoded."""
    if kind.numpy is None:
        return None
    return narrow.numpy_type(kind.numpy)


def decode(data: Bytes, kind: ElementType, count: int) -> Array:
    """The first count elements of data, one-dimensional; a view where the type allows it.

    data holds at least kind.nbytes(count) bytes. Raises MissingValueError for a type nobody defined
    in files.
    """
    dtype = dtype_of(kind)
    if dtype is not None:
        return _view(data[: dtype.itemsize * count], dtype)
    raw = data[: kind.nbytes(count)]
    if kind.name == "hifloat8":
        return hifloat8.decode(raw)
    if kind.name == "complex32":
        return _view(raw, np.dtype(np.float16)).astype(np.float32).view(np.complex64)
    if kind.name == "uint1":
        return np.unpackbits(raw, count=count)
    if kind.name in _PACKED:
        return _unpacked(raw, kind, count)
    raise MissingValueError(
        f"elements of type {kind.cann} cannot be read: no public source says how they lie in a file"
    )


def _view(raw: Bytes, dtype: np.dtype[Any]) -> Array:
    # A bool that is neither 0 nor 1 is undefined behaviour in NumPy; files may hold anything.
    elements: Array = raw != 0 if dtype.kind == "b" else raw.view(dtype)
    return elements


def _unpacked(raw: Bytes, kind: ElementType, count: int) -> Array:
    per = 8 // kind.bits
    shifts = np.arange(per, dtype=np.uint8) * np.uint8(kind.bits)
    codes: Array = ((raw[:, None] >> shifts) & np.uint8((1 << kind.bits) - 1)).reshape(-1)[:count]
    if kind.name == "float4_e2m1":
        return np.take(_NIBBLES, codes)
    if kind.name.startswith("uint"):
        return codes
    half = 1 << (kind.bits - 1)  # two's complement in the low bits
    return (codes.astype(np.int8) ^ np.int8(half)) - np.int8(half)


def encode(values: Array, kind: ElementType) -> Bytes:
    """Bytes of the elements in C order, the inverse of decode; the dtype must be the one decode
    gives for the type.
    """
    dtype = dtype_of(kind)
    flat = np.ascontiguousarray(values).reshape(-1)
    if dtype is not None:
        return np.ascontiguousarray(narrow.as_type(flat, dtype)).view(np.uint8)
    if kind.name == "hifloat8":
        return hifloat8.encode(flat)
    if kind.name == "complex32":
        return flat.astype(np.complex64).view(np.float32).astype(np.float16).view(np.uint8)
    if kind.name == "uint1":
        return np.packbits(flat.astype(np.uint8))
    if kind.name in _PACKED - {"float4_e2m1"}:
        return _packed(flat, kind)
    raise MissingValueError(
        f"elements of type {kind.cann} cannot be written: no public source says how they lie "
        "in a file"
    )


def _packed(flat: Array, kind: ElementType) -> Bytes:
    per = 8 // kind.bits
    codes = np.zeros(-(-flat.size // per) * per, np.uint8)
    codes[: flat.size] = flat.astype(np.int8).view(np.uint8) & np.uint8((1 << kind.bits) - 1)
    shifts = np.arange(per, dtype=np.uint8) * np.uint8(kind.bits)
    packed: Bytes = np.bitwise_or.reduce(codes.reshape(-1, per) << shifts, axis=1).astype(np.uint8)
    return packed
