# SPDX-License-Identifier: Apache-2.0
"""A projecting reader of Arrow IPC streams: only the buffers of the columns asked for are ever
touched.

nanoarrow copies the whole body of every batch it reads. A scan of a run needs three or four columns
of thirty, so this reader maps the file, walks the record-batch metadata and gives each wanted
buffer as a NumPy view of the map. Every offset and length is checked before use. It reads
uncompressed, little-endian streams without dictionaries, as TableFile writes them.

Source of the layout: Apache Arrow columnar format 1.0, "Encapsulated message format" and
format/Message.fbs; flatbuffers binary format (vtable at table - soffset; vtable entry i at 4 + 2
i).
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import msgspec
import nanoarrow
import numpy as np
from nanoarrow.ipc import InputStream

from opscope.arrays import Array
from opscope.errors import FormatError
from opscope.run.arrow import NUMBERS, Column, child_types, valid_rows

CONTINUATION = 0xFFFFFFFF
_SCHEMA, _RECORD_BATCH = 1, 3
_FORMATS = {
    "i": "int32",
    "l": "int64",
    "L": "uint64",
    "f": "float32",
    "g": "float64",
    "b": "bool",
    "u": "string",
}
_ITEMSIZES: dict[Any, int] = {
    dtype: np.dtype(dtype).itemsize
    for dtype in (np.uint8, np.int32, np.int64, np.uint64, np.float32, np.float64)
}
_FIXED = frozenset("cCsSIe")  # (u)int8, (u)int16, uint32, float16
_BYTES = frozenset({"z", "U", "Z"})  # binary, large text, large binary
_MAX_METADATA = 16 << 20
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class Batch(msgspec.Struct, frozen=True, gc=False):
    """One record batch in a mapped file: nodes are length, null count, length, …, buffers offset,
    length, … from body on.
    """

    offset: int
    body: int
    body_length: int
    rows: int
    nodes: list[int]
    buffers: list[int]


class _Place(msgspec.Struct, frozen=True):
    """Where a column's nodes and buffers begin in the flattened lists."""

    type: str
    node: int
    buffer: int
    children: tuple[_Place, ...] = ()
    dtype: Any = None  # of a column of numbers


class IpcFile:
    """An Arrow IPC stream on disk, open for reading.

    types are its columns by name. batches are the whole ones; torn is the offset where the file
    stops being readable, or None. file is what to read in place of path, which then only names it;
    what is not mapped is read into memory, so that nobody can cut it short meanwhile. FormatError
    when not even the schema can be read.
    """

    def __init__(self, path: Path, file: IO[bytes] | None = None, *, mapped: bool = True) -> None:
        self.path = path
        self._map = (
            (_map_path(path) if mapped else _read_path(path)) if file is None else _map_file(file)
        )
        self.size = len(self._map)
        self.torn: int | None = None
        self.torn_reason = ""
        metadata, body, length = self._message(0)
        if _message_header(metadata)[0] != _SCHEMA or length != 0:
            raise FormatError(path, "an Arrow stream must begin with its schema", offset=0)
        self.first = body
        self.types = _read_types(path, bytes(self._map[:body]))
        self._places, self._nodes, self._buffers = _places(self.types)

    @cached_property
    def batches(self) -> tuple[Batch, ...]:
        """The whole batches; sets torn and torn_reason when the file ends in the middle of one."""
        return tuple(self._walk())

    def release(self, batch: Batch | None = None) -> None:
        """Gives back the memory in which a batch, or the file, lies mapped; views of it stay as
        they are and are read again.
        """
        if isinstance(self._map, mmap.mmap) and hasattr(self._map, "madvise"):
            first = 0 if batch is None else batch.body // mmap.PAGESIZE * mmap.PAGESIZE
            length = self.size if batch is None else batch.body + batch.body_length - first
            if length:
                self._map.madvise(mmap.MADV_DONTNEED, first, length)

    @property
    def rows(self) -> int:
        """Rows of the whole batches."""
        return sum(batch.rows for batch in self.batches)

    def _walk(self) -> Iterator[Batch]:
        position = self.first
        while position < self.size:
            if self._map[position : position + 8] == END_OF_STREAM:
                return
            try:
                metadata, body, length = self._message(position)
                batch = self._batch(metadata, position, body, length)
            except FormatError as error:
                self.torn, self.torn_reason = position, error.reason
                return
            yield batch
            position = body + length

    def _message(self, position: int) -> tuple[memoryview, int, int]:
        """Metadata, start of the body and its length of the message at a position."""
        if position + 8 > self.size:
            raise FormatError(self.path, "torn", offset=position)
        marker, length = struct.unpack_from("<Ii", self._map, position)
        if marker != CONTINUATION or not 0 < length <= _MAX_METADATA:
            raise FormatError(self.path, "not an Arrow message", offset=position)
        body = position + 8 + length
        if body > self.size:
            raise FormatError(self.path, "torn", offset=position)
        metadata = memoryview(self._map)[position + 8 : body]
        try:
            body_length = _message_header(metadata)[2]
        except (struct.error, ValueError) as error:
            raise FormatError(self.path, "not an Arrow message", offset=position) from error
        if body_length < 0 or body + body_length > self.size:
            raise FormatError(self.path, "torn", offset=position)
        return metadata, body, body_length

    def _batch(self, metadata: memoryview, position: int, body: int, length: int) -> Batch:
        try:
            kind, table, _ = _message_header(metadata)
            if kind != _RECORD_BATCH:
                raise ValueError("not a record batch")
            rows, nodes, buffers = _record_batch(metadata, table)
        except (struct.error, ValueError) as error:
            raise FormatError(
                self.path, f"not a record batch opscope wrote: {error}", offset=position
            ) from error
        # every table has an integer column
        if len(nodes) != self._nodes or len(buffers) != self._buffers or not 0 <= rows <= length:
            raise FormatError(self.path, "a record batch does not fit the schema", offset=position)
        return Batch(position, body, length, rows, nodes.ravel().tolist(), buffers.ravel().tolist())

    def has_nulls(self, batch: Batch, name: str) -> bool:
        """Whether a column has a null row."""
        if batch.nodes[2 * self._places[name].node + 1] == 0:
            return False
        valid = valid_rows(self.column(batch, name))
        return valid is not None and not valid.all()

    def check(self, batch: Batch) -> None:
        """Check every buffer and offset of a batch: nanoarrow, which reads it next, crashes on some
        wrong ones.
        """
        self.check_numbers(batch)
        for column in self._places.values():
            if column.dtype is None and column.type != "bool":
                self._column(batch, column, batch.rows)

    def check_numbers(self, batch: Batch) -> None:
        """Check all buffers against the batch, and the columns of numbers wholly: looking one up
        cannot fail afterwards.
        """
        if batch.offset not in self._doubtful:
            return
        offsets, sizes = batch.buffers[::2], batch.buffers[1::2]
        if any(
            offset < 0 or size < 0 or offset + size > batch.body_length
            for offset, size in zip(offsets, sizes, strict=True)
        ):
            raise FormatError(self.path, "a buffer lies outside its batch", offset=batch.offset)
        raise FormatError(self.path, "a column does not fit its batch", offset=batch.offset)

    @cached_property
    def _doubtful(self) -> frozenset[int]:
        """Offsets of the batches of which a buffer lies outside or a column of numbers does not
        fit, found out for all at once.
        """
        batches = self.batches
        nodes = np.array([batch.nodes for batch in batches], dtype=np.int64).reshape(
            len(batches), -1, 2
        )
        buffers = np.array([batch.buffers for batch in batches], dtype=np.int64).reshape(
            len(batches), -1, 2
        )
        rows, room = (
            np.array([[getattr(batch, name)] for batch in batches], dtype=np.int64).reshape(-1, 1)
            for name in ("rows", "body_length")
        )
        offset, size = buffers[:, :, 0], buffers[:, :, 1]
        outside = ((offset < 0) | (size < 0) | (offset > room - size)).any(axis=1)
        places = [
            column
            for column in self._places.values()
            if column.dtype is not None or column.type == "bool"
        ]
        first = np.array([column.buffer for column in places], dtype=np.int64)
        bits = np.array(
            [1 if column.dtype is None else 8 * _ITEMSIZES[column.dtype] for column in places],
            dtype=np.int64,
        )
        length, nulls = np.moveaxis(nodes[:, [column.node for column in places]], 2, 0)
        short = (size[:, first + 1] < (rows * bits + 7) // 8) | (
            (nulls != 0) & (size[:, first] < (rows + 7) // 8)
        )
        unfit = (short | (length != rows) | (nulls < -1) | (nulls > rows)).any(axis=1)
        return frozenset(
            batches[column].offset for column in np.flatnonzero(outside | unfit).tolist()
        )

    def message(self, batch: Batch, constants: dict[str, int]) -> memoryview | bytearray:
        """The bytes of a batch, metadata included; int32 columns named in constants hold that
        number in every row.
        """
        whole = memoryview(self._map)[batch.offset : batch.body + batch.body_length]
        patched: bytearray | None = None
        for name, value in constants.items():
            rows = self.column(batch, name).buffers[0]
            if not np.any(rows != value):
                continue
            patched = bytearray(whole) if patched is None else patched
            start = batch.body - batch.offset + batch.buffers[2 * self._places[name].buffer + 2]
            patched[start : start + 4 * batch.rows] = np.full(
                batch.rows, value, dtype=np.int32
            ).tobytes()
        return whole if patched is None else patched

    def is_number(self, name: str) -> bool:
        """Whether a column is checked by check_numbers."""
        return self._places[name].dtype is not None or self._places[name].type == "bool"

    def column(self, batch: Batch, name: str) -> Column:
        """One column of a batch, its buffers views of the mapped file; FormatError when they lie
        outside the batch.
        """
        return self._column(batch, self._places[name], batch.rows)

    def _column(self, batch: Batch, column: _Place, rows: int | None) -> Column:
        length, nulls = batch.nodes[2 * column.node : 2 * column.node + 2]
        if length < 0 or (rows is not None and length != rows):
            raise FormatError(
                self.path, "a column is not as long as its batch", offset=batch.offset
            )
        present = nulls != 0 and length > 0 and batch.buffers[2 * column.buffer + 1] != 0
        if not -1 <= nulls <= length or (nulls > 0 and not present):
            raise FormatError(self.path, "a column miscounts its nulls", offset=batch.offset)
        validity = (
            self._buffer(batch, column.buffer, np.uint8, (length + 7) // 8) if present else None
        )
        first = column.buffer + 1
        if column.dtype is not None:
            return Column(
                column.type,
                length,
                0,
                validity,
                (self._buffer(batch, first, column.dtype, length),),
            )
        if column.type == "bool":
            return Column(
                column.type,
                length,
                0,
                validity,
                (self._buffer(batch, first, np.uint8, (length + 7) // 8),),
            )
        if column.type.startswith("struct<"):
            children = tuple(self._column(batch, child, length) for child in column.children)
            return Column(column.type, length, 0, validity, (), children)
        return self._variable(batch, column, length, validity)

    def _variable(
        self, batch: Batch, column: _Place, length: int, validity: Array | None
    ) -> Column:
        first = column.buffer + 1
        ends = self._buffer(batch, first, np.int32, length + 1 if length else 0)
        children = tuple(self._column(batch, child, None) for child in column.children)
        data: tuple[Array, ...] = (
            () if children else (self._buffer(batch, first + 1, np.uint8, None),)
        )
        room = children[0].length if children else len(data[0])
        if length and (ends[0] < 0 or ends[-1] > room or np.count_nonzero(ends[1:] < ends[:-1])):
            raise FormatError(
                self.path, "text or list offsets point outside the batch", offset=batch.offset
            )
        return Column(column.type, length, 0, validity, (ends, *data), children)

    def _buffer(self, batch: Batch, number: int, dtype: Any, count: int | None) -> Array:
        """A buffer as an array of count elements (None: as many as it has)."""
        offset, length = batch.buffers[2 * number : 2 * number + 2]
        itemsize = _ITEMSIZES[dtype]
        wanted = length if count is None else count * itemsize
        if offset < 0 or length < wanted or offset + length > batch.body_length:
            raise FormatError(self.path, "a buffer lies outside its batch", offset=batch.offset)
        elements = wanted // itemsize
        return (
            np.frombuffer(self._map, dtype, elements, batch.body + offset)
            if elements
            else np.empty(0, dtype)
        )


def _map_path(path: Path) -> mmap.mmap | bytes:
    try:
        with path.open("rb") as file:
            return _map_file(file)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error


def _read_path(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error


def _map_file(file: IO[bytes]) -> mmap.mmap | bytes:
    if not os.fstat(file.fileno()).st_size:
        return b""
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _field(metadata: memoryview, table: int, number: int) -> int | None:
    """Position of a field of a flatbuffers table, or None when it is absent."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    if vtable < 0:
        raise ValueError("bad metadata")
    size = struct.unpack_from("<H", metadata, vtable)[0]
    if 4 + 2 * number + 2 > size:
        return None
    offset = struct.unpack_from("<H", metadata, vtable + 4 + 2 * number)[0]
    return table + offset if offset else None


def _message_header(metadata: memoryview) -> tuple[int, int, int]:
    """Kind of a message, position of its header table, length of its body."""
    root = struct.unpack_from("<I", metadata, 0)[0]
    kind_at, header_at, body_at = (
        _field(metadata, root, 1),
        _field(metadata, root, 2),
        _field(metadata, root, 3),
    )
    if kind_at is None or header_at is None:
        raise ValueError("bad metadata")
    header = header_at + struct.unpack_from("<I", metadata, header_at)[0]
    body = 0 if body_at is None else struct.unpack_from("<q", metadata, body_at)[0]
    return struct.unpack_from("<B", metadata, kind_at)[0], header, body


def _record_batch(metadata: memoryview, table: int) -> tuple[int, Any, Any]:
    """Rows, field nodes and buffers of a record batch."""
    rows_at = _field(metadata, table, 0)
    if _field(metadata, table, 3) is not None:
        raise ValueError("compressed")
    rows = 0 if rows_at is None else struct.unpack_from("<q", metadata, rows_at)[0]
    return (
        rows,
        _pairs(metadata, _field(metadata, table, 1)),
        _pairs(metadata, _field(metadata, table, 2)),
    )


def _pairs(metadata: memoryview, field: int | None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A flatbuffers vector of structs of two int64."""
    if field is None:
        return np.empty((0, 2), dtype=np.int64)
    start = field + struct.unpack_from("<I", metadata, field)[0]
    count = struct.unpack_from("<I", metadata, start)[0]
    if start + 4 + 16 * count > len(metadata):
        raise ValueError("bad metadata")
    return np.frombuffer(metadata, dtype="<i8", count=2 * count, offset=start + 4).reshape(-1, 2)


def _read_types(path: Path, schema_message: bytes) -> dict[str, str]:
    """Column names and types; nanoarrow checks the schema message."""
    try:
        schema = nanoarrow.c_array_stream(
            InputStream.from_readable(schema_message + END_OF_STREAM)
        ).get_schema()
        types = {
            schema.child(i).name: _type_name(schema.child(i)) for i in range(schema.n_children)
        }
    except (RuntimeError, ValueError) as error:
        raise FormatError(
            path, f"the Arrow schema cannot be read: {' '.join(str(error).split())}", offset=0
        ) from error
    if len(types) != schema.n_children:
        raise FormatError(path, "the Arrow schema names a column twice", offset=0)
    return types


def _type_name(schema: Any) -> str:
    """Name of a nanoarrow schema as schema.py has it; "fixed" and "bytes" for columns that only
    need to be stepped over.
    """
    children = [schema.child(i) for i in range(schema.n_children)]
    if schema.dictionary is not None:
        raise ValueError(f"column {schema.name} has a dictionary")
    if schema.format == "+l":
        return f"list<{_type_name(children[0])}>"
    if schema.format == "+s":
        return f"struct<{','.join(f'{child.name}:{_type_name(child)}' for child in children)}>"
    if schema.format in _FORMATS:
        return _FORMATS[schema.format]
    if schema.format in _FIXED or schema.format.startswith("t"):
        return "fixed"
    if schema.format in _BYTES:
        return "bytes"
    raise ValueError(f"column {schema.name} has Arrow type {schema.format}")


def _places(types: dict[str, str]) -> tuple[dict[str, _Place], int, int]:
    places, node, buffer = {}, 0, 0
    for name, kind in types.items():
        places[name], node, buffer = _place(kind, node, buffer)
    return places, node, buffer


def _place(kind: str, node: int, buffer: int) -> tuple[_Place, int, int]:
    own = 1 if kind.startswith("struct<") else 3 if kind in {"string", "bytes"} else 2
    children, next_node, next_buffer = [], node + 1, buffer + own
    for _, child in child_types(kind):
        child_column, next_node, next_buffer = _place(child, next_node, next_buffer)
        children.append(child_column)
    return _Place(kind, node, buffer, tuple(children), NUMBERS.get(kind)), next_node, next_buffer
