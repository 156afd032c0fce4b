# SPDX-License-Identifier: Apache-2.0
"""Read NumPy's .npy files: the header alone, or the values memory-mapped, without ever unpickling.

Layout of the format: numpy.lib.format, "NEP 1". Every length in the header is checked against the
file before memory is taken.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError
from opscope.formats.bounded import OPEN_FLAGS
from opscope.narrow import as_type
from opscope.run.dtypes import DType, dtype_of_numpy, find_dtype

MAGIC = b"\x93NUMPY"
# NumPy itself writes headers of 128 bytes; records with many fields are not tensors
_HEADER_LIMIT = 65536
_READ_WHOLE = 1 << 20  # smaller files are read: a mapping costs more time than the copy
_DIMENSION_LIMIT = 1 << 62
_RANK_LIMIT = 64
_PLAIN = re.compile(
    rb"\{\s*'descr'\s*:\s*'([^']{1,40})'\s*,\s*'fortran_order'\s*:\s*(True|False)\s*,"
    rb"\s*'shape'\s*:\s*\(([0-9,\s]{0,2000})\)\s*,?\s*\}\s*$"
)
# Types that NumPy has no letter for, as other writers write them; the elements are the bytes
# themselves.
_BARE = re.compile(r"[<>=|]?([A-Za-z])([12])")
_NAMED = {"E2": "bfloat16"}  # MindSpore 2.10


class NpyHeader(msgspec.Struct, frozen=True):
    """What stands before the values: NumPy type, shape, order, where the values begin and how many
    bytes they fill.

    said is the element type, by our name, where the file says one that NumPy has not.
    """

    dtype: str
    shape: tuple[int, ...]
    fortran: bool
    offset: int
    nbytes: int
    said: str | None = None


def parse_npy_header(head: bytes, path: str | Path) -> NpyHeader:
    """Header of an .npy file from its first bytes (at least the whole header); FormatError when it
    is not one.
    """
    if not head.startswith(MAGIC):
        raise FormatError(path, "not an .npy file: the magic string is missing", offset=0)
    if len(head) < 10:
        raise FormatError(
            path, f"cut short inside the .npy header ({len(head)} bytes)", offset=len(head)
        )
    wide = head[6] >= 2
    start = 12 if wide else 10
    length = int.from_bytes(head[8:start], "little")
    if length > _HEADER_LIMIT:
        raise FormatError(
            path, f".npy header claims {length} bytes, more than any tensor's", offset=8
        )
    text = head[start : start + length]
    if len(text) < length:
        raise FormatError(
            path,
            f"cut short inside the .npy header ({len(head)} of {start + length} bytes)",
            offset=len(head),
        )
    fields = _PLAIN.match(text)
    if fields is None:
        raise FormatError(
            path,
            "an .npy header this reader does not accept (records and objects are not tensors)",
            offset=start,
        )
    descr = fields[1].decode("ascii", "replace")
    return _checked(descr, fields[2] == b"True", _shape(fields[3], path), start + length, path)


def _shape(text: bytes, path: str | Path) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in text.split(b",") if part.strip())
    except ValueError:
        raise FormatError(path, f"shape {text[:60]!r} is not numbers", offset=10) from None
    if len(shape) > _RANK_LIMIT or math.prod(shape) > _DIMENSION_LIMIT:
        raise FormatError(path, f"shape of rank {len(shape)} is beyond any tensor's", offset=10)
    return shape


def _checked(
    descr: str,
    fortran: bool,  # noqa: FBT001
    shape: tuple[int, ...],
    offset: int,
    path: str | Path,
) -> NpyHeader:
    dtype, said = _type(descr, path)
    if dtype.hasobject:
        raise FormatError(path, "holds pickled objects, which are never read", offset=10)
    if dtype.itemsize == 0 or dtype.names is not None or dtype.subdtype is not None:
        raise FormatError(path, f"element type {descr!r} is not that of a tensor", offset=10)
    return NpyHeader(dtype.str, shape, fortran, offset, math.prod(shape) * dtype.itemsize, said)


def _type(descr: str, path: str | Path) -> tuple[np.dtype[Any], str | None]:
    """NumPy's type, plain bytes for one it has not (ml_dtypes' float8_e5m2 is saved as "f1"),
    and what that is called here.
    """
    try:
        return np.dtype(descr), None
    except (TypeError, ValueError, SyntaxError):
        bare = _BARE.fullmatch(descr)
        if bare is None:
            raise FormatError(
                path, f"element type {descr!r} is not one of NumPy's", offset=10
            ) from None
        return np.dtype(f"V{bare[2]}"), _NAMED.get(bare[1] + bare[2])


def read_npy_header(path: str | Path) -> NpyHeader:
    """Header of one file; FormatError also when fewer bytes follow than the shape needs."""
    return _open(path, first=4096)[0]


def read_npy(path: str | Path, *, true: DType | None = None) -> Array:
    """Values of one file, mapped when large; true is the real element type where the file holds
    another one.

    bfloat16 and fp8 come as the bytes themselves ("|V2", "|V1", or unsigned integers) or widened to
    float32 (MindSpore, msprobe); both are brought back to the true type, the second exactly, since
    only widened values stand there.
    """
    header, start = _open(path, first=_READ_WHOLE)
    dtype, count = np.dtype(header.dtype), math.prod(header.shape)
    if header.offset + header.nbytes <= len(start):
        flat: Array = np.frombuffer(start, dtype, count, header.offset)
    else:
        try:
            flat = np.memmap(path, dtype, "r", header.offset, (count,))
        except (OSError, ValueError) as error:
            raise FormatError(path, f"cannot be read: {error}") from error
    values = in_shape(flat, header.shape, path, fortran=header.fortran)
    return as_true_type(
        values, find_dtype(header.said) if true is None and header.said is not None else true, path
    )


def in_shape(
    flat: Array, shape: Sequence[int], path: str | Path, *, fortran: bool = False
) -> Array:
    """Elements in a shape; FormatError for one that no array can have, which an empty one may
    claim: (0, 2**63).
    """
    try:
        return flat.reshape(shape, order="F" if fortran else "C")
    except (ValueError, OverflowError) as error:
        raise FormatError(
            path, f"{flat.size} elements in the shape {list(shape)}: {error}"
        ) from error


def _open(path: str | Path, *, first: int) -> tuple[NpyHeader, bytes]:
    """Header and first bytes of a file: one read gives both for a small one."""
    try:
        descriptor = os.open(path, OPEN_FLAGS)
        try:
            size = os.fstat(descriptor).st_size
            start = os.read(descriptor, min(size, first))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
    header = parse_npy_header(start, path)
    if size - header.offset < header.nbytes:
        raise FormatError(
            path,
            f"cut short: {size - header.offset} of {header.nbytes} bytes of values",
            offset=size,
        )
    return header, start


def as_true_type(values: Array, true: DType | None, path: str | Path) -> Array:
    """The same elements in their true type; FormatError when the stored ones cannot hold it."""
    if true is None or true.numpy is None:
        return values
    wanted = true.to_numpy()
    if values.dtype == wanted:
        return values
    if values.dtype.itemsize == wanted.itemsize and values.dtype.kind in "Vu":
        return values.view(wanted)
    if values.dtype == np.float32 and true.kind == "float" and wanted.itemsize < 4:
        return as_type(values, wanted)
    if values.dtype.kind == wanted.kind and values.dtype.newbyteorder("=") == wanted:
        return values.astype(wanted)
    raise FormatError(path, f"holds {values.dtype} where {true.name} was announced")


def npy_dtype(header: NpyHeader, path: str | Path) -> DType:
    """Element type of a file by its header alone; FormatError for types no tensor has."""
    known = find_dtype(header.said) if header.said is not None else None
    if known is not None:
        return known
    dtype = np.dtype(header.dtype)
    try:
        return dtype_of_numpy(dtype)
    except ValueError as error:
        raise FormatError(path, str(error), offset=10) from None
