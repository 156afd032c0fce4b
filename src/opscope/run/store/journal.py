# SPDX-License-Identifier: Apache-2.0
"""The journal: inputs of the call that a thread is making, written before the call begins, readable
after kill -9 or abort.

A process has one file for each thread that makes journalled calls, journal-0, journal-1, …. A file
holds one call, the last one, and is as large as the largest call so far. All numbers are
little-endian.

Header, at 0:
    0   8 bytes  "OPSCOPJR"
    8   uint32   version, 1
    12  uint32   state: 0 empty or being written, 1 the call is being made, 2 it returned, 3 it
                 raised
    16  uint64   thread id
    24  int64    index of the call, -1 when it is not recorded
    32  uint64   bytes of the head
    40  24 bytes zero
The head, at 64, is JSON: {"op": …, "args": argument tree of docs/schema.md as text, "tensors":
[{"slot", "dtype", "shape", "stride", "storage", "offset", "device", "requires_grad", "at",
"bytes"}]}. "at" and "bytes" say where the tensor's elements lie in the file, each covered element
once in the order of memory, as values of a run do; null when they could not be read.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import FormatError, MissingValueError
from opscope.run.dtypes import find_dtype
from opscope.run.schema import Tensor, ValueRef
from opscope.run.store.held_file import HeldFile
from opscope.run.store.shard_reader import shaped

if TYPE_CHECKING:
    from opscope.arrays import Array

NAME = "journal-"
MAGIC = b"OPSCOPJR"
VERSION = 1
HEADER = struct.Struct("<8sIIQqQ24x")
STATE_AT = 12
EMPTY, OPEN, RETURNED, RAISED = range(4)
LEAST = 1 << 20
ALIGNMENT = 64
HEAD_LIMIT = 16 << 20


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One input tensor of the head."""

    slot: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None = None
    storage: int | None = None
    offset: int = 0
    device: str = "cpu"
    requires_grad: bool = False
    at: int | None = None
    bytes: int = 0


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What stands before the elements."""

    op: str
    args: str
    tensors: tuple[Held, ...]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One journal as it was found."""

    name: str
    state: int
    thread: int
    index: int
    head: Head

    def rows(self, process: int, index: int) -> tuple[Tensor, ...]:
        """The inputs as rows of table tensors, their values in the journal."""
        return tuple(
            Tensor(
                process=process,
                index=index,
                io="input",
                slot=held.slot,
                storage=held.storage,
                offset=held.offset,
                dtype=held.dtype,
                shape=held.shape,
                stride=held.stride,
                device=held.device,
                layout="strided",
                requires_grad=held.requires_grad,
                value=None if held.at is None else ValueRef(self.name, held.slot),
            )
            for held in self.head.tensors
        )


class JournalFile:
    """The writing side of one thread's journal; OSError when the disk has no room for it, or the
    file is gone.
    """

    def __init__(self, path: Path, thread: int) -> None:
        self._file = HeldFile(path)
        self._thread = thread
        self._size = 0
        self._grow(LEAST)

    def write(self, index: int, head: bytes, blocks: list[tuple[int, Any]]) -> None:
        """Note a call that is about to begin: its head, and blocks of bytes at their places."""
        self._put(HEADER.pack(MAGIC, VERSION, EMPTY, self._thread, index, len(head)), 0)
        end = max([HEADER.size + len(head), *(at + len(block) for at, block in blocks)])
        if end > self._size:
            self._grow(-(-end // LEAST) * LEAST)
        self._put(head, HEADER.size)
        for at, block in blocks:
            self._put(block, at)
        self.mark(OPEN)

    def mark(self, state: int) -> None:
        """Say what became of the call."""
        self._put(struct.pack("<I", state), STATE_AT)

    def _put(self, data: Any, at: int) -> None:
        self._file.write(memoryview(data).cast("B"), at)

    def _grow(self, size: int) -> None:
        self._file.allocate(0, size)
        self._file.truncate(size)
        self._size = size

    def close(self) -> None:
        """Close the file, which stays."""
        self._file.close()


def read_journals(directory: Path) -> tuple[Entry, ...]:
    """The journals of a process that hold a call which did not return; damaged ones raise
    FormatError.
    """
    entries = []
    for path in sorted(directory.glob(f"{NAME}*")):
        entry = _read(path)
        if entry is not None:
            entries.append(entry)
    return tuple(entries)


def _read(path: Path) -> Entry | None:
    try:
        with path.open("rb") as file:
            start = file.read(HEADER.size)
            if len(start) < HEADER.size or start[:8] != MAGIC:
                raise FormatError(path, "not a journal of opscope", offset=0)
            _, version, state, thread, index, length = HEADER.unpack(start)
            if version != VERSION:
                raise FormatError(
                    path, f"journal of version {version}; this opscope reads {VERSION}", offset=8
                )
            if state not in {OPEN, RAISED}:
                return None
            if length > HEAD_LIMIT:
                raise FormatError(
                    path,
                    f"its head of {length} bytes is larger than any that opscope writes",
                    offset=32,
                )
            head = msgspec.json.decode(file.read(length), type=Head)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(path, f"its head is damaged: {error}", offset=HEADER.size) from error
    return Entry(name=path.name, state=state, thread=thread, index=index, head=head)


def read_value(directory: Path, entry: Entry, tensor: Tensor) -> Array:
    """Elements of one input; MissingValueError when they were not written, FormatError when the
    file is too short for them.
    """
    import numpy as np

    held = next(
        (held for held in entry.head.tensors if held.slot == tensor.slot and held.at is not None),
        None,
    )
    if held is None or held.at is None:
        raise MissingValueError(f"{entry.name} holds no values of input {tensor.slot}")
    path = directory / entry.name
    if (
        find_dtype(held.dtype) is None
        or not 0 <= held.at <= held.at + held.bytes <= path.stat().st_size
    ):
        raise FormatError(
            path, f"input {tensor.slot} lies outside the file", offset=max(held.at, 0)
        )
    return shaped(np.fromfile(path, dtype=np.uint8, count=held.bytes, offset=held.at), tensor, path)
