# SPDX-License-Identifier: Apache-2.0
"""safetensors files, written one tensor at a time so that inputs larger than memory can be handed over.

Layout (https://github.com/huggingface/safetensors, Format): 8 bytes length of the header, little-endian; the header, a
JSON object name -> {dtype, shape, data_offsets}, padded with spaces; the tensors without gaps. The padding and the order,
wide elements first, align every tensor to its elements in a mapped file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import FormatError
from opscope.run.dtypes import DType

if TYPE_CHECKING:
    import numpy as np

ALIGNMENT = 64
# Element types every safetensors.torch since 0.4 reads; all others are written as bytes, their type stands in case.json.
NATIVE = frozenset({
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8", "uint8", "bool",
})  # fmt: skip


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of the file; load gives its elements when their turn comes."""

    key: str
    dtype: DType
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray[Any, Any]]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's elements."""
        size = self.dtype.itemsize
        for length in self.shape:
            size *= length
        return size


def write_tensors(path: Path, entries: Sequence[Entry]) -> int:
    """Write the file and return its size in bytes; FormatError when a value is not what its entry says."""
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

    array = entry.load()
    if array.shape != entry.shape or array.dtype.itemsize != entry.dtype.itemsize:
        found = f"{array.dtype}{list(array.shape)}"
        raise FormatError(path, f"cannot be written: the run holds {found} for {entry.key}, {entry.dtype.name}{list(entry.shape)} expected")
    dense = np.ascontiguousarray(array)
    if dense.dtype.byteorder == ">":
        dense = dense.astype(dense.dtype.newbyteorder("<"))
    return dense.reshape(-1).view(np.uint8).data
