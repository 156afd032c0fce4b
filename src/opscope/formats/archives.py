# SPDX-License-Identifier: Apache-2.0
"""Arrays inside .npz and .safetensors files: which there are, and the values of one, with every
length checked first.

Members of an .npz may be deflated. A deflated member that would fill more than a gibibyte and more
than 64 times its file is
taken for a bomb. safetensors: an 8-byte header length, JSON {name: {dtype, shape, data_offsets}},
then the bytes.
"""

from __future__ import annotations

import lzma
import math
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError, MissingValueError
from opscope.formats.bounded_json import parse_json
from opscope.formats.npy import as_true_type, in_shape, parse_npy_header
from opscope.run.dtypes import DType, find_dtype

_MEMBERS = 1 << 20
_HEADER = 1 << 17
_FREE = 256 << 20  # what may be unpacked out of however few bytes
_RATIO = 64
_PART = 1 << 24
_SAFE_HEADER = 100 << 20
_TORN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
)  # what zipfile raises


class Stored(msgspec.Struct, frozen=True):
    """One tensor of a safetensors file: type, shape and where its bytes lie."""

    dtype: DType
    shape: tuple[int, ...]
    start: int
    nbytes: int


def npz_names(path: Path) -> list[str]:
    """Names of the arrays in an .npz, without their suffix."""
    with _opened(path) as archive:
        return [
            info.filename[: -len(".npy")]
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        ]


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
    except _TORN as error:
        raise FormatError(path, f"not a zip that can be read: {error}") from error
    if len(archive.infolist()) > _MEMBERS:
        archive.close()
        raise FormatError(path, f"a zip of {len(archive.infolist())} members")
    return archive


def read_npz(path: Path, name: str, *, true: DType | None = None) -> Array:
    """One array of an .npz; FormatError for a torn member or a bomb."""
    with _opened(path) as archive:
        try:
            info = archive.getinfo(f"{name}.npy")
        except KeyError:
            raise MissingValueError(f"{path}: has no array {name!r}") from None
        if info.flag_bits & 1 or (
            info.file_size > _FREE and info.file_size > _RATIO * max(1, info.compress_size)
        ):
            raise FormatError(
                path,
                f"array {name!r} unpacks {info.compress_size} bytes to {info.file_size}; not read",
                offset=info.header_offset,
            )
        try:
            with archive.open(info) as member:
                head = member.read(_HEADER)
                header = parse_npy_header(head, f"{path}:{name}")
                if header.offset + header.nbytes > info.file_size:
                    raise FormatError(
                        path, f"array {name!r} is cut short", offset=info.header_offset
                    )
                data = np.empty(header.nbytes, np.uint8)
                if not _filled(data, head[header.offset :], member):
                    raise FormatError(
                        path, f"array {name!r} is cut short", offset=info.header_offset
                    )
        except _TORN as error:
            raise FormatError(
                path, f"array {name!r} cannot be unpacked: {error}", offset=info.header_offset
            ) from error
    flat = data.view(np.dtype(header.dtype))[: math.prod(header.shape)]
    return as_true_type(in_shape(flat, header.shape, path, fortran=header.fortran), true, path)


def _filled(data: Array, start: bytes, rest: IO[bytes]) -> bool:
    """Whether there were bytes enough: the start, then the rest as it is unpacked, without a second
    copy of it all.
    """
    at = min(len(start), data.size)
    data[:at] = np.frombuffer(start, np.uint8, at)
    while at < data.size:
        part = rest.read(min(data.size - at, _PART))
        if not part:
            return False
        data[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    return True


def safetensors_index(path: Path) -> dict[str, Stored]:
    """Tensors of a safetensors file by name; FormatError for a header that does not fit the
    file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(size - 8, _SAFE_HEADER):
                raise FormatError(
                    path,
                    f"a header of {length} bytes in a file of {size}; torn, or no safetensors",
                    offset=0,
                )
            text = stream.read(length)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
    value = parse_json(text, path)
    if not isinstance(value, dict):
        raise FormatError(path, "header is not a JSON object", offset=8)
    return {
        name: _stored(path, name, item, 8 + length, size)
        for name, item in value.items()
        if name != "__metadata__"
    }


def _stored(path: Path, name: str, value: Any, base: int, size: int) -> Stored:
    fields = value if isinstance(value, dict) else {}
    dtype = find_dtype(fields["dtype"]) if isinstance(fields.get("dtype"), str) else None
    shape, offsets = _sizes(fields.get("shape")), _sizes(fields.get("data_offsets"))
    if dtype is None or shape is None or offsets is None or len(offsets) != 2:
        raise FormatError(
            path, f"tensor {name!r} has no dtype, shape and data_offsets that make sense", offset=8
        )
    begin, end = offsets
    if not begin <= end <= size - base or dtype.nbytes(math.prod(shape)) != end - begin:
        raise FormatError(
            path,
            f"tensor {name!r} of bytes {begin} to {end} does not fit its shape or the file",
            offset=base,
        )
    return Stored(dtype, shape, base + begin, end - begin)


def _sizes(value: Any) -> tuple[int, ...] | None:
    known = (
        isinstance(value, list)
        and len(value) <= 64
        and all(type(size) is int and 0 <= size < 1 << 62 for size in value)
    )
    return tuple(value) if known else None


def read_safetensors(path: Path, name: str, *, true: DType | None = None) -> Array:
    """One tensor of a safetensors file, mapped."""
    entry = safetensors_index(path).get(name)
    if entry is None:
        raise MissingValueError(f"{path}: has no tensor {name!r}")
    dtype = entry.dtype.to_numpy()
    if entry.nbytes == 0:
        return in_shape(np.zeros(0, dtype), entry.shape, path)
    values = np.memmap(path, dtype, "r", entry.start, (math.prod(entry.shape),))
    return as_true_type(values.reshape(entry.shape), true, path)


def keys_of(path: Path) -> Iterator[str]:
    """Keys of the arrays of one file: names in an archive, "" for a file of one array."""
    if path.suffix == ".npz":
        yield from npz_names(path)
    elif path.suffix == ".safetensors":
        yield from safetensors_index(path)
    else:
        yield ""
