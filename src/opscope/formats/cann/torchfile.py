# SPDX-License-Identifier: Apache-2.0
"""Writes one tensor as a .pt file that torch.load(weights_only=True) reads, without torch.

A .pt file is a zip of stored members: archive/data.pkl (a pickle that rebuilds the tensor),
archive/data/0 (its bytes), archive/byteorder, archive/version. The pickle is put together here
opcode by opcode (protocol 2); nothing is unpickled.
"""

from __future__ import annotations

import struct
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.narrow import name_of

if TYPE_CHECKING:
    from typing import BinaryIO

    from opscope.arrays import Array

# Types with a storage class of their own; the others name their dtype beside an untyped storage.
_STORAGES = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "int16": "ShortStorage",
    "int32": "IntStorage",
    "int64": "LongStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}
_DTYPES = frozenset(
    ("uint16", "uint32", "uint64", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu")
)


def writable(dtype: np.dtype[Any]) -> bool:
    """Whether torch has this type."""
    name = name_of(dtype)
    return name in _STORAGES or name in _DTYPES


def write(file: BinaryIO, values: Array) -> None:
    """Write the values, in C order, as a tensor of the same shape and type into an open file; the
    type must be writable.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", _pickle(values))
        archive.writestr("archive/byteorder", b"little")
        with archive.open("archive/data/0", "w", force_zip64=True) as member:
            member.write(flat.view(np.uint8).data if flat.size else b"")
        archive.writestr("archive/version", b"3\n")


def _pickle(values: Array) -> bytes:
    name = name_of(values.dtype)
    typed = name in _STORAGES
    storage = _name("torch", _STORAGES[name]) if typed else _name("torch.storage", "UntypedStorage")
    count = values.size if typed else values.nbytes
    strides = tuple(int(np.prod(values.shape[axis + 1 :])) for axis in range(values.ndim))
    identity = _tuple(_text("storage"), storage, _text("0"), _text("cpu"), _number(count))
    arguments = [
        identity + b"Q",  # a storage kept outside of the pickle
        _number(0),
        _tuple(*map(_number, values.shape)),
        _tuple(*map(_number, strides)),
        b"\x89",  # requires_grad=False
        _name("collections", "OrderedDict") + b")R",
    ]
    if not typed:
        arguments.append(_name("torch", name))
    rebuild = _name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
    return b"\x80\x02" + rebuild + _tuple(*arguments) + b"R."


def _name(module: str, name: str) -> bytes:
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _number(value: int) -> bytes:
    if value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def _tuple(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"
