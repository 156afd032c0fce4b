# SPDX-License-Identifier: Apache-2.0
"""Writes the tensors of a run as plain files: .npy, .bin, .pt, .txt, .csv, one each, or
.safetensors shards.

    rank{r}/step{s}/{call}.{input|output}.{slot}.npy
    rank{r}/step{s}/{call}.{input|output}.{slot}.{4_16}.{float16}.bin  plain bytes, C order,
                                                                       little-endian
    rank{r}/step{s}/{npy name}.txt                                     flat, shape and type in a "#"
                                                                       line

bfloat16 and fp8 become float32 in .npy, which NumPy alone can read; the list beside the files
(opscope.jsonl) keeps the true type, and reading brings it back exactly. A .txt of a tensor that
came from an .npy keeps that file's name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Any

import numpy as np

from opscope.arrays import Array
from opscope.errors import UsageError
from opscope.formats.cann import torchfile
from opscope.formats.cann.names import parse, read_mapping
from opscope.formats.text_arrays import write_csv, write_txt
from opscope.formats.writing.naming import Names, folder_of, safe, stem_of
from opscope.narrow import name_of, widened
from opscope.run.dtypes import dtype_of_numpy
from opscope.run.schema import Call, Tensor, ValueRef

KINDS = ("npy", "bin", "pt", "txt", "csv", "safetensors")
_SHARD = 256 << 20


def wide(values: Array) -> Array:
    """Values in a type that plain NumPy reads: bfloat16 and fp8 widened to float32, which is
    exact.
    """
    return widened(values)


def write_npy(path: Path, values: Array) -> None:
    """An .npy that plain NumPy reads."""
    with path.open("wb") as stream:
        np.lib.format.write_array(stream, np.asarray(wide(values)), allow_pickle=False)


def write_bin(path: Path, values: Array) -> None:
    """The bytes of the elements in C order, little-endian."""
    plain = np.ascontiguousarray(values)
    little = plain.astype(plain.dtype.newbyteorder("<")) if plain.dtype.byteorder == ">" else plain
    path.write_bytes(little.reshape(-1).view(np.uint8).data if little.size else b"")


def write_pt(path: Path, values: Array) -> None:
    """A .pt that torch.load(weights_only=True) reads; UsageError for a type torch does not have."""
    if not torchfile.writable(values.dtype):
        raise UsageError(f"torch has no type for {name_of(values.dtype)}; choose another --type")
    with path.open("wb") as stream:
        torchfile.write(stream, values)


_WRITE: dict[str, Callable[[Path, Array], None]] = {
    "npy": write_npy,
    "bin": write_bin,
    "pt": write_pt,
    "txt": write_txt,
    "csv": write_csv,
}


class ArrayFiles:
    """A folder of files of one kind."""

    def __init__(self, out: Path, kind: str, *, root: Path | None = None) -> None:
        self._out, self._kind, self._root = out, kind, root
        self._names = Names()
        self._known: dict[Path, dict[str, str]] = {}

    def write(self, call: Call, tensor: Tensor, values: Array) -> ValueRef:
        """Write one tensor; where it lies, relative to the folder."""
        folder = folder_of(call)
        stem, suffix = stem_of(call, tensor), f".{self._kind}"
        if self._kind == "txt":
            stem = f"{self._origin(tensor) or stem}.npy"
        if self._kind == "bin":
            stem += (
                f".{'_'.join(map(str, values.shape)) or 'scalar'}"
                f".{dtype_of_numpy(values.dtype).name}"
            )
        name = self._names.take(folder, stem, suffix)
        (self._out / folder).mkdir(parents=True, exist_ok=True)
        _WRITE[self._kind](self._out / folder / name, values)
        return ValueRef(f"{folder}/{name}", "")

    def _origin(self, tensor: Tensor) -> str | None:
        """Name of the .npy a tensor lies in, or that is made of its CANN dump file: with type, task
        and time; None for other files.
        """
        if tensor.value is None:
            return None
        file = PurePosixPath(tensor.value.shard)
        if self._root is not None:
            folder = (self._root if self._root.is_dir() else self._root.parent) / file.parent
            if folder not in self._known:
                self._known[folder] = read_mapping(folder)
            file = PurePosixPath(self._known[folder].get(file.name, file.name))
        if file.suffix == ".npy":
            return safe(file.stem)
        dump = parse(file.name)
        return (
            safe(f"{file.name}.{tensor.value.key}")
            if dump is not None and tensor.value.key
            else None
        )

    def close(self) -> None:
        """Nothing is held back."""


class SafetensorsFiles:
    """Shards of a bounded size, one open for each rank and step at a time; a shard is written when
    it is full.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._names = Names()
        self._open: dict[str, tuple[int, dict[str, Array]]] = {}
        self._sizes: dict[str, int] = {}
        self._lock = Lock()

    def write(self, call: Call, tensor: Tensor, values: Array) -> ValueRef:
        """Put one tensor into its shard."""
        kind = dtype_of_numpy(values.dtype)
        if kind.safetensors is None:
            raise UsageError(f"safetensors has no type for {kind.name}; choose another --type")
        folder = folder_of(call)
        key = self._names.take(folder, stem_of(call, tensor), "")
        with self._lock:
            number, held = self._open.setdefault(folder, (0, {}))
            held[key] = np.ascontiguousarray(values)
            self._sizes[folder] = self._sizes.get(folder, 0) + values.nbytes
            if self._sizes[folder] >= _SHARD:
                self._seal(folder)
        return ValueRef(f"{folder}/values-{number:05d}.safetensors", key)

    def _seal(self, folder: str) -> None:
        number, held = self._open[folder]
        (self._out / folder).mkdir(parents=True, exist_ok=True)
        write_safetensors(self._out / folder / f"values-{number:05d}.safetensors", held)
        self._open[folder], self._sizes[folder] = (number + 1, {}), 0

    def close(self) -> None:
        """Write the shards that are not full."""
        for folder in list(self._open):
            if self._open[folder][1]:
                self._seal(folder)


def write_safetensors(path: Path, tensors: dict[str, Array]) -> None:
    """Write a safetensors file; layout: archives.py."""
    import msgspec

    header: dict[str, Any] = {}
    at = 0
    for name, values in tensors.items():
        size = math.prod(values.shape) * values.itemsize
        header[name] = {
            "dtype": dtype_of_numpy(values.dtype).safetensors,
            "shape": list(values.shape),
            "data_offsets": [at, at + size],
        }
        at += size
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for values in tensors.values():
            stream.write(values.reshape(-1).view(np.uint8).data if values.size else b"")
