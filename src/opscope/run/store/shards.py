# SPDX-License-Identifier: Apache-2.0
"""Value shards: safetensors files of tensor values, each value stored once under the xxh3-128 of
its bytes.

A shard is a safetensors file (https://github.com/huggingface/safetensors, "Format"): uint64 N, N
bytes of JSON header padded with spaces, then the values without gaps. The key of a value is the
lower-case hexadecimal xxh3-128 of its bytes. dtype and shape in the header are those of the first
tensor that had these bytes, U8 where safetensors has no code for the type (complex128, int4, …) or
the bytes are not exactly those of the shape; the row that points here has the true ones.

While a shard is written it is called NAME.partial: room for the header is reserved, values are
streamed behind it, the header is written last, and the file renamed. A shard smaller than one
buffer is written in one go, with a header of exact size. A crash leaves at most a .partial file,
which readers ignore.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from opscope.run.dtypes import find_dtype
from opscope.run.store.held_file import HeldFile
from opscope.run.store.spool import CHUNK_BYTES, Spool

RESERVED = 256 << 10  # header room of a streamed shard, the 8 bytes of its length included
SHARD_BYTES = 256 << 20
ALLOCATION = 32 << 20
ALIGNMENT = 8
METADATA = {"opscope": "1"}


class Entry(msgspec.Struct, frozen=True):
    """One value in a shard's header; data_offsets count from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class OpenShard:
    """The shard that values are being added to: what its header will hold. It does no I/O."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"values-{number:05d}.safetensors"
        self.size = 0
        self.entries: dict[str, Entry] = {}
        self._header_bytes = 128

    def add(self, key: str, nbytes: int, dtype: str, shape: Sequence[int]) -> bool:
        """Reserve room for a value; False when header or shard is full and a new shard is
        needed.
        """
        code, header_shape = _header_type(dtype, shape, nbytes)
        entry = Entry(code, header_shape, (self.size, self.size + nbytes))
        room = len(key) + len(msgspec.json.encode(entry)) + 4
        full = self._header_bytes + room > RESERVED or self.size + nbytes > SHARD_BYTES
        if full and self.entries:
            return False
        self.entries[key] = entry
        self.size += nbytes
        self._header_bytes += room
        return True

    def header(self, *, reserved: int | None = None) -> bytes:
        """The file's first bytes, length included; padded to the reserved size, else to
        ALIGNMENT.
        """
        text = msgspec.json.encode({"__metadata__": METADATA, **self.entries})
        total = -(-(len(text) + 8) // ALIGNMENT) * ALIGNMENT if reserved is None else reserved
        return (total - 8).to_bytes(8, "little") + text.ljust(total - 8)


def _header_type(dtype: str, shape: Sequence[int], nbytes: int) -> tuple[str, tuple[int, ...]]:
    known = find_dtype(dtype)
    if known is None or known.safetensors is None or math.prod(shape) * known.itemsize != nbytes:
        return "U8", (nbytes,)
    return known.safetensors, tuple(shape)


class ShardFile:
    """The file of a shard. Values come in order and are gathered in buffers; every method may raise
    OSError.
    """

    def __init__(self, directory: Path, name: str, spool: Spool) -> None:
        self.path = directory / name
        self._partial = directory / f"{name}.partial"
        self._spool = spool
        self._file: HeldFile | None = None
        self._buffer: mmap.mmap | None = None
        self._filled = 0
        self._written = 0
        self._allocated = 0

    def append(self, data: memoryview) -> None:
        """Add the next bytes of the value region; they may change after return."""
        done = 0
        while done < len(data):
            buffer = self.make_room()
            count = min(len(data) - done, CHUNK_BYTES - self._filled)
            source = np.frombuffer(data, dtype=np.uint8, count=count, offset=done)
            np.copyto(
                np.frombuffer(buffer, dtype=np.uint8, count=count, offset=self._filled),
                source,
            )
            done += count
            self._filled += count
            if self._filled == CHUNK_BYTES:
                self._send()

    def make_room(self) -> mmap.mmap:
        """The buffer for what is appended next; MemoryError says that none can be had, and changes
        nothing.
        """
        if self._buffer is None:
            self._buffer = self._spool.take()
        return self._buffer

    def _send(self) -> None:
        """Hand the full buffer to the spool."""
        if self._file is None:
            self._file = HeldFile(self._partial, direct=self._spool.prefer_direct())
        end = self._written + self._filled
        if end > self._allocated:
            # Space is taken in large pieces: faster, and a full disk shows here and not in the
            # middle of a tensor.
            self._file.allocate(RESERVED + self._allocated, ALLOCATION)
            self._allocated += ALLOCATION
        if self._buffer is not None:
            self._spool.write(self._file, self._buffer, self._filled, RESERVED + self._written)
        self._buffer, self._filled, self._written = None, 0, end

    def seal(self, shard: OpenShard) -> None:
        """Write what is left and the header, cut the file to its size and give it its name."""
        if self._file is None:
            header = shard.header()
            self._file = HeldFile(self._partial)
        else:
            header = shard.header(reserved=RESERVED)
            self._spool.drain()
            self._file.leave_direct()
        if self._buffer is not None:
            with memoryview(self._buffer)[: self._filled] as rest:
                self._file.write(rest, len(header) + self._written)
        self._file.write(memoryview(header), 0)
        self._file.truncate(len(header) + shard.size)
        self.close()
        self._partial.rename(self.path)

    def close(self) -> None:
        """Close the file and let go of memory."""
        if self._file is not None:
            self._file.close()
        if self._buffer is not None:
            self._spool.give_back(self._buffer)
        self._file, self._buffer = None, None

    def drop_after_fork(self) -> Spool:
        """In a forked child, which has not the spool's thread: close the file, and give a spool
        that holds nothing.
        """
        if self._file is not None:
            self._file.close()
        self._file, self._buffer, self._spool = None, None, Spool()
        return self._spool

    def discard(self) -> None:
        """Close and remove what was written."""
        self._spool.stop()
        self.close()
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)


def parse_header(data: bytes | memoryview, size: int) -> tuple[int, dict[str, Entry]]:
    """Start of the value region and the entries of a shard's header; ValueError says what is wrong.

    data is the file's beginning, size the file's length. Every range is checked against the file.
    """
    if size < 8 or len(data) < 8:
        raise ValueError("shorter than its header")
    length = int.from_bytes(data[:8], "little")
    if length > size - 8 or length > 100_000_000 or length > len(data) - 8:
        raise ValueError(f"header of {length} bytes does not fit into the file")
    try:
        raw: dict[str, Any] = msgspec.json.decode(bytes(data[8 : 8 + length]), type=dict[str, Any])
        raw.pop("__metadata__", None)
        entries = msgspec.convert(raw, dict[str, Entry])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"header is not that of a shard: {error}") from error
    room = size - 8 - length
    for key, entry in entries.items():
        begin, end = entry.data_offsets
        if not 0 <= begin <= end <= room:
            raise ValueError(f"value {key[:40]!r} lies outside the file")
    return 8 + length, entries
