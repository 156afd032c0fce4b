# SPDX-License-Identifier: Apache-2.0
"""Read tensors that torch.save wrote, without torch and without unpickling.

A .pt file is a zip of stored members: NAME/data.pkl describes the object, NAME/data/KEY holds the bytes of each storage,
NAME/byteorder says their order. data.pkl is walked by pt_pickle, which executes nothing; large storages are mapped, not read.
Files of torch before 1.6 (several pickles in a row, then raw storages) are refused with a line that says so.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from opscope.errors import FormatError, MissingValueError
from opscope.formats.pt_pickle import SavedTensor, Storage, Walker
from opscope.run.dtypes import dtype_of

_PICKLE_LIMIT = 1 << 26  # data.pkl of a tensor has 160 bytes; 64 MiB is a checkpoint of a hundred thousand
_MEMBER_LIMIT = 1 << 20
_MAP_FROM = 1 << 20
_DEPTH_LIMIT = 64
_NODE_LIMIT = 1 << 20


class PtFile:
    """One .pt file: the tree of what was saved, and the values of its tensors. FormatError when it cannot be read safely."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._members = self._directory()
        self._prefix = next((name[: -len("data.pkl")] for name in self._members if name.rsplit("/", 1)[-1] == "data.pkl"), None)
        if self._prefix is None:
            raise FormatError(path, "a zip without data.pkl, so not written by torch.save")
        self.tree = Walker(self._small("data.pkl", _PICKLE_LIMIT), path).run()
        order = self._prefix + "byteorder"
        self._big = order in self._members and self._small("byteorder", 16) == b"big"

    def _directory(self) -> dict[str, zipfile.ZipInfo]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                members = archive.infolist()
        except (OSError, zipfile.BadZipFile, ValueError, RuntimeError) as error:
            raise FormatError(self.path, _not_a_zip(self.path, error)) from error
        if len(members) > _MEMBER_LIMIT:
            raise FormatError(self.path, f"a zip of {len(members)} members, more than any checkpoint")
        return {member.filename: member for member in members}

    def _member(self, name: str) -> tuple[int, int]:
        """Where the bytes of a stored member begin and how many they are; torch.save never compresses."""
        info = self._members.get(f"{self._prefix}{name}")
        if info is None:
            raise FormatError(self.path, f"member {name!r} is missing")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise FormatError(
                self.path, f"member {name!r} is compressed or encrypted, which torch.save never does", offset=info.header_offset
            )
        with self.path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, info.header_offset))  # of a torn directory it can be negative
            head = stream.read(30)
        if info.header_offset < 0 or len(head) < 30 or head[:4] != b"PK\x03\x04":
            raise FormatError(self.path, f"member {name!r} is not where the directory says", offset=info.header_offset)
        begin = info.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        if begin + info.file_size > size:
            raise FormatError(self.path, f"member {name!r} is cut short", offset=size)
        return begin, info.file_size

    def _small(self, name: str, limit: int) -> bytes:
        begin, size = self._member(name)
        if size > limit:
            raise FormatError(self.path, f"member {name!r} has {size} bytes, more than a file of tensors needs", offset=begin)
        with self.path.open("rb") as stream:
            stream.seek(begin)
            return stream.read(size)

    def tensors(self) -> Iterator[tuple[str, SavedTensor]]:
        """Every tensor with its path in the tree ("" for a bare tensor, "model.0.weight"), in the order of the file."""
        waiting: list[tuple[str, Any, int]] = [("", self.tree, 0)]
        for _ in range(_NODE_LIMIT):
            if not waiting:
                return
            path, node, depth = waiting.pop()
            if isinstance(node, SavedTensor):
                yield path, node
            elif depth < _DEPTH_LIMIT:  # a list may hold itself
                below = [(f"{path}.{key}" if path else str(key), value, depth + 1) for key, value in _items(node)]
                waiting.extend(reversed(below))
        raise FormatError(self.path, f"more than {_NODE_LIMIT} items; not a file of tensors")

    def values(self, saved: SavedTensor) -> np.ndarray[Any, Any]:
        """Elements of one tensor in its true type and shape; FormatError when they lie outside the storage."""
        flat = self._storage(saved.storage, saved.dtype)
        last = saved.offset + sum((size - 1) * step for size, step in zip(saved.shape, saved.stride, strict=True))
        if math.prod(saved.shape) == 0:
            return np.zeros(saved.shape, flat.dtype)
        if last >= flat.size:
            raise FormatError(self.path, f"a tensor reaches element {last} of a storage of {flat.size}")
        steps = tuple(step * flat.itemsize for step in saved.stride)
        raw = flat.view(np.uint8)  # the types of ml_dtypes cannot be a buffer, nor be strided by as_strided
        return np.ndarray(saved.shape, flat.dtype, raw.data, saved.offset * flat.itemsize, steps)

    def _storage(self, storage: Storage, dtype: str) -> np.ndarray[Any, Any]:
        begin, size = self._member(f"data/{storage.key}")
        kind = dtype_of(dtype)
        if kind.numpy is None:
            raise MissingValueError(f"{self.path}: {dtype} has no NumPy type here")
        claimed = storage.numel * dtype_of(storage.dtype).itemsize
        if size < claimed:
            raise FormatError(self.path, f"storage {storage.key!r} holds {size} of {claimed} bytes", offset=begin)
        numpy = kind.to_numpy()
        count = claimed // numpy.itemsize
        if claimed >= _MAP_FROM:
            flat: np.ndarray[Any, Any] = np.memmap(self.path, numpy, "r", begin, (count,))
        else:
            with self.path.open("rb") as stream:
                stream.seek(begin)
                flat = np.frombuffer(stream.read(claimed), numpy, count)
        return flat.byteswap() if self._big else flat


def _not_a_zip(path: Path, error: Exception) -> str:
    """Why a file is no zip; tells torch's old form from a torn file."""
    try:
        with path.open("rb") as stream:
            head = stream.read(16)
    except OSError as unread:
        return f"cannot be read: {unread.strerror or unread}"
    if head.startswith(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"):
        return "written by torch before 1.6; load it there and save it again"
    if head.startswith(b"PK"):
        return f"a torn zip: {error}"
    return "not a .pt file: no zip"


def _items(node: Any) -> list[tuple[Any, Any]]:
    if isinstance(node, dict):
        return list(node.items())
    return list(enumerate(node)) if isinstance(node, (list, tuple)) else []


def read_pt(path: str | Path) -> np.ndarray[Any, Any]:
    """Values of the one tensor a file holds; FormatError when it holds none or several."""
    file = PtFile(path)
    if isinstance(file.tree, SavedTensor):
        return file.values(file.tree)
    found = [saved for _, saved in zip(range(2), file.tensors(), strict=False)]
    if len(found) != 1:
        raise FormatError(path, f"holds {'several' if found else 'no'} tensors where one was expected")
    return file.values(found[0][1])
