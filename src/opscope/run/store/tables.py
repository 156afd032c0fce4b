# SPDX-License-Identifier: Apache-2.0
"""One table of a process on disk: an Arrow IPC stream appended batch by batch.

Each batch reaches the file in one piece; when that fails, the file is cut back to the last whole
batch. The layout is Arrow's own (IPC streaming format, columnar format 1.0), written by nanoarrow;
the end-of-stream marker comes with close().
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import nanoarrow
from nanoarrow.c_array import CArray
from nanoarrow.c_array_stream import CArrayStream
from nanoarrow.ipc import StreamWriter

from opscope.errors import RecordError
from opscope.run.descriptor import LostFileError
from opscope.run.store.held_file import HeldFile

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class _Pieces:
    """Collects what nanoarrow writes, so that a batch goes to the file in one call."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, piece: Any) -> int:
        self.data += piece
        return len(piece)


class TableFile:
    """An Arrow IPC stream being written; OSError from write() leaves whole batches behind."""

    def __init__(self, path: Path, schema: Any) -> None:
        self.path = path
        self._schema = schema
        self._pieces = _Pieces()
        self._writer = StreamWriter.from_writable(self._pieces)
        self._file = HeldFile(path, fresh=True)
        self.size = 0
        self._writer.write_stream(CArrayStream.from_c_arrays([], schema))
        self._flush()

    def write(self, batch: CArray) -> None:
        """Append one struct array whose columns are those of the schema."""
        self._writer.write_stream(batch, write_schema=False)
        self._flush()

    def close(self) -> None:
        """Mark the end and close."""
        try:
            self._pieces.data += END_OF_STREAM
            self._flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without marking the end: after an error, and in a forked child."""
        self._file.close()
        self._writer.release()

    def _flush(self) -> None:
        # A fresh buffer for the next batch: one whose views still live somewhere could not be
        # emptied.
        data, self._pieces.data = memoryview(self._pieces.data), bytearray()
        if self._file.stat().st_size != self.size:
            raise LostFileError(
                errno.EIO,
                "changed by somebody else while it was being written",
                os.fspath(self.path),
            )
        try:
            self._file.write(data, self.size)
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self.size)
            raise
        self.size += len(data)


def schema_bytes(schema: Any) -> bytes:
    """The first message of a stream."""
    return _message(CArrayStream.from_c_arrays([], schema), write_schema=True)


def batch_bytes(batch: CArray) -> bytes:
    """The message of one batch."""
    return _message(batch, write_schema=False)


def _message(what: Any, *, write_schema: bool) -> bytes:
    pieces = _Pieces()
    writer = StreamWriter.from_writable(pieces)
    writer.write_stream(what, write_schema=write_schema)
    writer.release()
    return bytes(pieces.data)


def checked_batch(table: str, batch: Any, schema: Any) -> CArray:
    """The batch as a nanoarrow array; RecordError when its columns are not those of the table, in
    order.
    """
    array = nanoarrow.c_array(batch)
    if array.schema.format != "+s" or _shape(array.schema) != _shape(schema):
        raise RecordError(
            f"a batch for table {table} does not have the columns of docs/schema.md in their order"
        )
    return array


def _shape(schema: Any) -> list[Any]:
    children = [schema.child(i) for i in range(schema.n_children)]
    return [(child.name, child.format, _shape(child)) for child in children]
