# SPDX-License-Identifier: Apache-2.0
"""Reading tensor values from the shards of one process directory, lazily and through the page
cache.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError, MissingValueError
from opscope.run.dtypes import find_dtype
from opscope.run.schema import Tensor, ValueRef
from opscope.run.store.layout import is_shard_name
from opscope.run.store.shards import Entry, parse_header


class Shard:
    """One mapped shard; FormatError when it is not a safetensors file or its header points outside
    it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise MissingValueError(
                f"{path}: the shard is gone (deleted with old steps, or not copied)"
            ) from error
        except (OSError, ValueError) as error:
            raise FormatError(path, f"cannot be read: {error}") from error
        try:
            self._start, self._entries = parse_header(memoryview(self._map), len(self._map))
        except ValueError as error:
            raise FormatError(path, str(error), offset=0) from error

    def entry(self, key: str) -> Entry:
        """The header's entry of a value; MissingValueError for an unknown key."""
        entry = self._entries.get(key)
        if entry is None:
            raise MissingValueError(f"{self.path}: holds no value {key[:40]!r}")
        return entry

    def bytes_of(self, key: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes of a value as a read-only view of the file."""
        begin, end = self.entry(key).data_offsets
        return np.frombuffer(
            self._map, dtype=np.uint8, count=end - begin, offset=self._start + begin
        )


def _here(directory: Path, table: str) -> None:
    """Files that are here need nothing to be read."""


class Files(NamedTuple):
    """How the files of a process directory are come by.

    shard opens one by its path; arrive is called with the directory and a table before its segments
    are looked for.
    """

    shard: Callable[[Path], Shard] = Shard
    arrive: Callable[[Path, str], None] = _here


class ShardReader:
    """The shards of one process directory; at most 64 stay mapped."""

    def __init__(self, directory: Path, opened: Callable[[Path], Shard] = Shard) -> None:
        self._directory = directory
        self._open = lru_cache(maxsize=64)(opened)

    def read(self, tensor: Tensor, ref: ValueRef) -> Array:
        """Elements of a tensor row; of raw bytes, one dimension, for a type NumPy does not have."""
        if not is_shard_name(ref.shard):
            raise FormatError(
                self._directory,
                f"a row points to {ref.shard[:80]!r}, which is not the name of a shard",
            )
        shard = self._open(self._directory / ref.shard)
        return shaped(shard.bytes_of(ref.key), tensor, shard.path)


def shaped(data: np.ndarray[Any, np.dtype[np.uint8]], tensor: Tensor, path: Path) -> Array:
    """Bytes as the array that a row describes; an expanded tensor's bytes are those of its base.

    FormatError when the bytes are neither those of the shape nor those of the shape with stride-0
    dimensions taken once.
    """
    kind = find_dtype(tensor.dtype)
    if kind is None or kind.numpy is None:
        return data
    dtype, shape = kind.to_numpy(), tensor.shape or ()
    if len(data) % dtype.itemsize:
        raise FormatError(path, f"{len(data)} bytes are no whole number of {tensor.dtype} elements")
    elements = (
        data.view(dtype) if data.ctypes.data % dtype.alignment == 0 else data.copy().view(dtype)
    )
    if tensor.shape is None:
        return elements
    laid = (
        laid_out(elements, shape, tensor.stride)
        if math.prod(max(1, size) for size in shape) < 1 << 62
        else None
    )
    if laid is not None:
        return laid
    raise FormatError(path, f"{elements.size} elements do not fill a tensor of shape {list(shape)}")


def laid_out(
    elements: Array, shape: tuple[int, ...], stride: tuple[int, ...] | None
) -> Array | None:
    """Stored elements as the array of a row, None when they do not fill it.

    A recorder stores what a tensor covers in the order of memory, that is by falling stride,
    elements that a stride of 0 repeats once; a tensor that overlaps itself otherwise, or whose
    strides are unknown, is stored in logical order.
    """
    known = stride if stride is not None and len(stride) == len(shape) else None
    once = (
        shape
        if known is None
        else tuple(1 if step == 0 else size for size, step in zip(shape, known, strict=True))
    )
    if elements.size not in {math.prod(once), math.prod(shape)}:
        return None
    if known is None or elements.size != math.prod(once):
        return elements.reshape(shape) if elements.size == math.prod(shape) else None
    order = sorted(range(len(shape)), key=lambda axis: (-known[axis], axis))
    if overlapping([(once[axis], known[axis]) for axis in order]):
        return elements.reshape(shape) if elements.size == math.prod(shape) else None
    block = elements.reshape([once[axis] for axis in order])
    return np.broadcast_to(block.transpose(np.argsort(order)), shape)


def overlapping(dims: list[tuple[int, int]]) -> bool:
    """Whether two elements may share memory; dims are (size, stride) by falling stride."""
    reach = 0
    for size, step in reversed(dims):
        if size > 1:
            if step <= reach:
                return True
            reach += (size - 1) * step
    return False
