# SPDX-License-Identifier: Apache-2.0
"""safetensors files, written one tensor at a time so that inputs larger than memory can be handed
over.

Layout (https://github.com/huggingface/safetensors, Format): 8 bytes length of the header,
little-endian; the header, a JSON object name -> {dtype, shape, data_offsets}, padded with spaces;
the tensors without gaps. The padding and the order, wide elements first, align every tensor to its
elements in a mapped file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import FormatError
from opscope.run.dtypes import DType, dtype_of

if TYPE_CHECKING:
    from opscope.arrays import Array

ALIGNMENT = 64
# Element types every safetensors.torch since 0.4 reads; all others are written as bytes, their type
# stands in case.json.
NATIVE = frozenset(
    {
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "bool",
    }
)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of the file; load gives its elements when their turn comes."""

    key: str
    dtype: DType
    shape: tuple[int, ...]
    load: Callable[[], Array]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's elements."""
        size = self.dtype.itemsize
        for length in self.shape:
            size *= length
        return size


def write_tensors(path: Path, entries: Sequence[Entry]) -> int:
    """Write the file and return its size in bytes; FormatError when a value is not what its entry
    says.
    """
    header: dict[str, Any] = {}
    position = 0
    for entry in sorted(entries, key=lambda entry: -entry.dtype.itemsize):
        native = entry.dtype.name in NATIVE
        header[entry.key] = {
            "dtype": entry.dtype.safetensors if native else "U8",
            "shape": list(entry.shape) if native else [entry.nbytes],
            "data_offsets": [position, position + entry.nbytes],
        }
        position += entry.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    by_key = {entry.key: entry for entry in entries}
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for key in header:
            file.write(_elements(path, by_key[key]))
    return 8 + len(text) + position


def _elements(path: Path, entry: Entry) -> memoryview:
    import numpy as np

    from opscope.narrow import name_of

    array = entry.load()
    if array.shape != entry.shape or array.dtype.itemsize != entry.dtype.itemsize:
        held = f"{name_of(array.dtype)}{list(array.shape)}"
        raise FormatError(
            path,
            f"cannot be written: the run holds {held} for {entry.key}, "
            f"{entry.dtype.name}{list(entry.shape)} expected",
        )
    dense = np.ascontiguousarray(array)
    if dense.dtype.byteorder == ">":
        dense = dense.astype(dense.dtype.newbyteorder("<"))
    return dense.reshape(-1).view(np.uint8).data


class StoredTensors(msgspec.Struct, frozen=True):
    """The content of a safetensors file: its bytes, and where each tensor lies in them."""

    path: Path
    data: bytes
    places: dict[str, tuple[int, int]]

    def array(self, key: str, dtype: str, shape: tuple[int, ...] | None) -> Array:
        """Elements of one tensor in this type and shape (None: one dimension), whatever the file
        calls them.

        FormatError when they do not fit.
        """
        import numpy as np

        if key not in self.places:
            raise FormatError(
                self.path, f"holds no tensor {key!r}; write the folder anew with opscope repro"
            )
        start, stop = self.places[key]
        wanted_type = dtype_of(dtype)
        elements = (stop - start) // max(wanted_type.itemsize, 1)
        wanted = (elements,) if shape is None else shape
        if math.prod(wanted) * wanted_type.itemsize != stop - start:
            raise FormatError(
                self.path,
                f"tensor {key!r} has {stop - start} bytes, {dtype}{list(wanted)} was expected",
            )
        return np.frombuffer(
            self.data, wanted_type.to_numpy(), count=elements, offset=start
        ).reshape(wanted)


def read_tensors(path: Path) -> StoredTensors:
    """Read a file that write_tensors wrote; FormatError for one that is damaged."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(
            path, f"cannot be read ({error.strerror}); write the folder anew with opscope repro"
        ) from error
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise FormatError(path, "is cut short", offset=0)
    try:
        header = msgspec.json.decode(data[8 : 8 + length], type=dict[str, Any])
        header.pop("__metadata__", None)
        places = {key: msgspec.convert(entry, _Place).data_offsets for key, entry in header.items()}
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(path, f"is not a safetensors file: {error}", offset=8) from error
    base = 8 + length
    for key, (start, stop) in places.items():
        if not 0 <= start <= stop <= len(data) - base:
            raise FormatError(path, f"tensor {key!r} lies outside the file", offset=base)
    return StoredTensors(
        path, data, {key: (base + start, base + stop) for key, (start, stop) in places.items()}
    )


class _Place(msgspec.Struct):
    data_offsets: tuple[int, int]
