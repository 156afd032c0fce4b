# SPDX-License-Identifier: Apache-2.0
"""Read tensors that torch.save wrote, without torch and without unpickling.

A .pt file is a zip of stored members: NAME/data.pkl describes the object, NAME/data/KEY holds the
bytes of each storage, NAME/byteorder says their order. data.pkl is walked by pt_pickle, which
executes nothing; large storages are mapped, not read. Files of torch before 1.6 (several pickles in
a row, then raw storages) are refused with a line that says so.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError, MissingValueError
from opscope.formats.bounded import OPEN_FLAGS
from opscope.formats.pt_pickle import PickleError, SavedTensor, Storage, Walker
from opscope.formats.zip_members import Data, content_of, members_of
from opscope.run.dtypes import dtype_of

_PICKLE_LIMIT = (
    1 << 26
)  # data.pkl of a tensor has 160 bytes; 64 MiB is a checkpoint of a hundred thousand
_MAP_FROM = 1 << 16
_BRIEF = 1 << 12  # bytes of a pickle whose tree is kept for the next file
_DEPTH_LIMIT = 64
_NODE_LIMIT = 1 << 20


class PtFile:
    """One .pt file: the tree of what was saved, and the values of its tensors. FormatError when it
    cannot be read safely.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._data = _bytes_of(path)
        try:
            self._members = members_of(self._data)
        except ValueError as error:
            raise FormatError(path, _not_a_zip(self._data, error)) from error
        self._prefix = next(
            (
                name[: -len("data.pkl")]
                for name in self._members
                if name.rsplit("/", 1)[-1] == "data.pkl"
            ),
            None,
        )
        if self._prefix is None:
            raise FormatError(path, "a zip without data.pkl, so not written by torch.save")
        self.tree = self._tree(self._small("data.pkl", _PICKLE_LIMIT))
        self._big = (
            f"{self._prefix}byteorder" in self._members and self._small("byteorder", 16) == b"big"
        )

    def _member(self, name: str) -> tuple[int, int]:
        """Where the bytes of a stored member begin and how many they are; torch.save never
        compresses.
        """
        member = self._members.get(f"{self._prefix}{name}")
        if member is None:
            raise FormatError(self.path, f"member {name!r} is missing")
        if not member.plain:
            raise FormatError(
                self.path,
                f"member {name!r} is compressed or encrypted, which torch.save never does",
                offset=member.header,
            )
        try:
            return content_of(self._data, member), member.size
        except ValueError as error:
            raise FormatError(
                self.path, f"member {name!r} {error}", offset=member.header
            ) from error

    def _small(self, name: str, limit: int) -> bytes:
        begin, size = self._member(name)
        if size > limit:
            raise FormatError(
                self.path,
                f"member {name!r} has {size} bytes, more than a file of tensors needs",
                offset=begin,
            )
        return self._data[begin : begin + size]

    def _tree(self, pickled: bytes) -> Any:
        try:
            return (_known_tree if len(pickled) <= _BRIEF else _tree_of)(pickled)
        except PickleError as error:
            raise FormatError(self.path, f"data.pkl: {error}", offset=error.offset) from error

    def tensors(self) -> Iterator[tuple[str, SavedTensor]]:
        """Every tensor with its path in the tree ("" for a bare tensor, "model.0.weight"), in the
        order of the file.
        """
        waiting: list[tuple[str, Any, int]] = [("", self.tree, 0)]
        for _ in range(_NODE_LIMIT):
            if not waiting:
                return
            path, node, depth = waiting.pop()
            if isinstance(node, SavedTensor):
                yield path, node
            elif depth < _DEPTH_LIMIT:  # a list may hold itself
                below = [
                    (f"{path}.{key}" if path else str(key), value, depth + 1)
                    for key, value in _items(node)
                ]
                waiting.extend(reversed(below))
        raise FormatError(self.path, f"more than {_NODE_LIMIT} items; not a file of tensors")

    def values(self, saved: SavedTensor) -> Array:
        """Elements of one tensor in its true type and shape; FormatError when they lie outside the
        storage.
        """
        kind = dtype_of(saved.dtype)
        begin, claimed = self._storage(saved.storage)
        if kind.numpy is None:
            raise MissingValueError(f"{self.path}: {saved.dtype} has no NumPy type here")
        numpy = kind.to_numpy()
        if math.prod(saved.shape) == 0:
            return np.zeros(saved.shape, numpy)
        last = saved.offset + sum(
            (size - 1) * step for size, step in zip(saved.shape, saved.stride, strict=True)
        )
        count = claimed // numpy.itemsize
        if last >= count:
            raise FormatError(self.path, f"a tensor reaches element {last} of a storage of {count}")
        steps = tuple(step * numpy.itemsize for step in saved.stride)
        values: Array = np.ndarray(
            saved.shape, numpy, self._data, begin + saved.offset * numpy.itemsize, steps
        )
        return values.byteswap() if self._big else values

    def _storage(self, storage: Storage) -> tuple[int, int]:
        """Where the bytes of a storage begin and how many they are."""
        begin, size = self._member(f"data/{storage.key}")
        claimed = storage.numel * dtype_of(storage.dtype).itemsize
        if size < claimed:
            raise FormatError(
                self.path, f"storage {storage.key!r} holds {size} of {claimed} bytes", offset=begin
            )
        return begin, claimed


def _tree_of(pickled: bytes) -> Any:
    return Walker(pickled).run()


# Of thousands of files with one tensor each, those of one shape have the same pickle. Nobody
# changes a tree.
_known_tree = lru_cache(maxsize=256)(_tree_of)


def _bytes_of(path: str | Path) -> Data:
    """All bytes of a file: mapped, or read where the copy costs less than the mapping."""
    try:
        descriptor = os.open(path, OPEN_FLAGS)
        try:
            size = os.fstat(descriptor).st_size
            return (
                mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
                if size >= _MAP_FROM
                else os.read(descriptor, size)
            )
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise FormatError(path, f"cannot be read: {reason or error}") from error


def _not_a_zip(data: Data, error: Exception) -> str:
    """Why bytes are no zip; tells torch's old form from a torn file."""
    head = data[:16]
    if head.startswith(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"):
        return "written by torch before 1.6; load it there and save it again"
    if head.startswith(b"PK"):
        return f"a torn zip: {error}"
    return "not a .pt file: no zip"


def _items(node: Any) -> list[tuple[Any, Any]]:
    if isinstance(node, dict):
        return list(node.items())
    return list(enumerate(node)) if isinstance(node, (list, tuple)) else []


def read_pt(path: str | Path) -> Array:
    """Values of the one tensor a file holds; FormatError when it holds none or several."""
    file = PtFile(path)
    if isinstance(file.tree, SavedTensor):
        return file.values(file.tree)
    first_two = [saved for _, saved in zip(range(2), file.tensors(), strict=False)]
    if len(first_two) != 1:
        raise FormatError(
            path, f"holds {'several' if first_two else 'no'} tensors where one was expected"
        )
    return file.values(first_two[0][1])
