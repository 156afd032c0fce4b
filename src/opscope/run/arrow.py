# SPDX-License-Identifier: Apache-2.0
"""Rows of the tables as Arrow arrays, and back, by nanoarrow alone.

A table is a struct array whose children are the columns of schema.TABLES in order. Types are named
as in schema.py: "int32", "int64", "uint64", "float32", "float64", "bool", "string", "list<T>",
"struct<name:T,…>". Layout of the buffers: the Arrow columnar format 1.0 (validity bitmap, least
significant bit first; int32 offsets for strings and lists).
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import nanoarrow
import numpy as np
from nanoarrow.c_array import CArray, c_array_from_buffers
from nanoarrow.c_array_stream import CArrayStream
from nanoarrow.c_schema import c_schema

from opscope.arrays import Array, Ints
from opscope.errors import FormatError
from opscope.run.schema import PROCESS_TYPES, RECORDS, TABLES, ValueRef

if TYPE_CHECKING:
    from opscope.run.protocol import ArrowStream

NUMBERS = {
    "int32": np.int32,
    "int64": np.int64,
    "uint64": np.uint64,
    "float32": np.float32,
    "float64": np.float64,
}
ROWS_PER_BATCH = 8192


class Batch(Mapping[str, "Array"]):
    """Columns of some rows of a table, of which some rows can be taken before any is decoded."""

    @abstractmethod
    def at(self, rows: Ints) -> Batch:
        """These rows, by their number here."""


class Column(msgspec.Struct, frozen=True, gc=False):
    """One Arrow array by its buffers; length rows start at offset. type is a name of schema.py.

    buffers are the ones after the validity bitmap: data, or offsets and bytes; validity is None
    when no row is null.
    """

    type: str
    length: int
    offset: int
    validity: Array | None
    buffers: tuple[Array, ...]
    children: tuple[Column, ...] = ()


def child_types(kind: str) -> tuple[tuple[str, str], ...]:
    """Names and types of the children: ("item", T) of a list, the fields of a struct, none for the
    rest.
    """
    if kind.startswith("list<"):
        return (("item", kind[5:-1]),)
    if kind.startswith("struct<"):
        return tuple(
            (name, child)
            for name, _, child in (field.partition(":") for field in kind[7:-1].split(","))
        )
    return ()


@lru_cache(maxsize=64)
def arrow_schema(kind: str) -> Any:
    """nanoarrow schema of a type of schema.py."""
    children = child_types(kind)
    if kind.startswith("list<"):
        return c_schema(nanoarrow.list_(arrow_schema(children[0][1])))
    if kind.startswith("struct<"):
        return c_schema(nanoarrow.struct({name: arrow_schema(child) for name, child in children}))
    return c_schema(getattr(nanoarrow, "bool_" if kind == "bool" else kind)())


@lru_cache(maxsize=16)
def table_schema(table: str) -> Any:
    """nanoarrow schema of a table: a struct with its columns in order."""
    return schema_of(TABLES[table])


def schema_of(types: dict[str, str]) -> Any:
    """nanoarrow schema of a struct with these columns."""
    return c_schema(nanoarrow.struct({name: arrow_schema(kind) for name, kind in types.items()}))


def encode_rows(table: str, rows: Sequence[msgspec.Struct]) -> CArray:
    """Records as one struct array in schema column order; OverflowError for an integer its column
    cannot hold.
    """
    return encode_columns(
        TABLES[table], [[getattr(row, name) for row in rows] for name in TABLES[table]]
    )


def encode_columns(types: dict[str, str], columns: Sequence[Sequence[Any]]) -> CArray:
    """Lists of Python values, None for null, as one struct array."""
    children = [
        encode_column(kind, values) for kind, values in zip(types.values(), columns, strict=True)
    ]
    length = len(columns[0]) if columns else 0
    return c_array_from_buffers(schema_of(types), length, [None], null_count=0, children=children)


def encode_column(kind: str, values: Sequence[Any]) -> CArray:
    """One column of Python values, None for null."""
    valid = np.fromiter((value is not None for value in values), dtype=bool, count=len(values))
    nulls = int(len(values) - np.count_nonzero(valid))
    bitmap = np.packbits(valid, bitorder="little") if nulls else None
    buffers, children = _encode_buffers(kind, values)
    return c_array_from_buffers(
        arrow_schema(kind), len(values), [bitmap, *buffers], null_count=nulls, children=children
    )


def _encode_buffers(kind: str, values: Sequence[Any]) -> tuple[list[Any], list[CArray]]:
    if kind in NUMBERS:
        return [
            np.array([0 if value is None else value for value in values], dtype=NUMBERS[kind])
        ], []
    if kind == "bool":
        return [
            np.packbits(np.array([bool(value) for value in values], dtype=bool), bitorder="little")
        ], []
    if kind == "string":
        encoded = [
            b"" if value is None else value.encode("utf-8", "backslashreplace") for value in values
        ]
        return [_offsets(encoded), b"".join(encoded)], []
    if kind.startswith("list<"):
        lists = [() if value is None else value for value in values]
        flat = [item for items in lists for item in items]
        return [_offsets(lists)], [encode_column(kind[5:-1], flat)]
    fields = child_types(kind)
    return [], [
        encode_column(child, [None if v is None else getattr(v, name) for v in values])
        for name, child in fields
    ]


def _offsets(items: Sequence[Sequence[Any] | bytes]) -> np.ndarray[Any, np.dtype[np.int32]]:
    ends = np.zeros(len(items) + 1, dtype=np.int64)
    np.cumsum([len(item) for item in items], out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        raise OverflowError("a batch holds more than 2 GiB of text; append smaller batches")
    return ends.astype(np.int32)


def column_of_view(kind: str, view: Any) -> Column:
    """A nanoarrow array view as a Column, without a copy."""
    buffers = [np.asarray(view.buffer(i)) for i in range(view.n_buffers)]
    validity = buffers[0].view(np.uint8) if view.null_count != 0 and buffers[0].size else None
    fields = child_types(kind)
    children = tuple(column_of_view(child, view.child(i)) for i, (_, child) in enumerate(fields))
    data = tuple(buffers[1:])
    if kind == "string":
        data = (data[0], data[1].view(np.uint8))
    elif kind == "bool":
        data = (data[0].view(np.uint8),)
    return Column(kind, view.length, view.offset, validity, data, children)


def valid_rows(column: Column) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    """Which rows are not null; None when all are."""
    if column.validity is None:
        return None
    return _bits(column.validity, column.offset, column.length)


def _bits(bitmap: Array, offset: int, length: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    first = offset // 8
    bits = np.unpackbits(bitmap[first : (offset + length + 7) // 8], bitorder="little")
    return bits[offset - first * 8 : offset - first * 8 + length].view(bool)


def column_values(column: Column) -> list[Any]:
    """The column as Python values, None for null."""
    values = _values(column)
    valid = valid_rows(column)
    if valid is None or valid.all():
        return values
    return [value if kept else None for value, kept in zip(values, valid.tolist(), strict=True)]


def _values(column: Column) -> list[Any]:
    first, last = column.offset, column.offset + column.length
    if column.type in NUMBERS:
        return list(column.buffers[0][first:last].tolist())
    if column.type == "bool":
        return list(_bits(column.buffers[0], first, column.length).tolist())
    if column.type == "string":
        return _strings(column)
    if column.type.startswith("list<"):
        ends = column.buffers[0][first : last + 1].tolist()
        items = column_values(column.children[0]) if column.length else []
        return [tuple(items[start:end]) for start, end in itertools.pairwise(ends)]
    fields = [column_values(sliced(child, first, column.length)) for child in column.children]
    names = [name for name, _ in child_types(column.type)]
    if names == ["shard", "key"]:
        return [
            None if shard is None else ValueRef(shard, key)
            for shard, key in zip(*fields, strict=True)
        ]
    return [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)]


def _strings(column: Column) -> list[str]:
    if column.length == 0:
        return []
    ends = column.buffers[0][column.offset : column.offset + column.length + 1].tolist()
    start, end = ends[0], ends[-1]
    data = column.buffers[1][start:end].tobytes()
    if data.isascii():  # offsets of bytes are offsets of characters
        text = data.decode("ascii")
        return [text[a - start : b - start] for a, b in itertools.pairwise(ends)]
    return [
        data[a - start : b - start].decode("utf-8", "replace") for a, b in itertools.pairwise(ends)
    ]


def sliced(column: Column, offset: int, length: int) -> Column:
    """length rows of a column from offset on, without a copy."""
    return Column(
        column.type,
        length,
        column.offset + offset,
        column.validity,
        column.buffers,
        column.children,
    )


def taken(column: Column, rows: Ints) -> Column:
    """Some rows of a column, by their number in it, in buffers of their own."""
    valid = valid_rows(column)
    validity = None if valid is None else np.packbits(valid[rows], bitorder="little")
    buffers, children = _taken_buffers(column, rows)
    return Column(column.type, len(rows), 0, validity, buffers, children)


def _taken_buffers(column: Column, rows: Ints) -> tuple[tuple[Array, ...], tuple[Column, ...]]:
    places = column.offset + rows
    if column.type in NUMBERS:
        return (column.buffers[0][places],), ()
    if column.type == "bool":
        bits = _bits(column.buffers[0], column.offset, column.length)
        return (np.packbits(bits[rows], bitorder="little"),), ()
    if column.type.startswith("struct<"):
        here = (sliced(child, column.offset, column.length) for child in column.children)
        return (), tuple(taken(child, rows) for child in here)
    starts, stops = column.buffers[0][places], column.buffers[0][places + 1]
    ends = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(stops - starts, out=ends[1:])
    stretches = zip(starts.tolist(), stops.tolist(), strict=True)
    if column.type == "string":
        text = np.ascontiguousarray(column.buffers[1]).data
        joined = b"".join([text[start:stop] for start, stop in stretches])
        return (ends, np.frombuffer(joined, dtype=np.uint8)), ()
    items = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], stops - starts)
    return (ends,), (taken(column.children[0], items),)


def owned(column: Column) -> Column:
    """The column with buffers of its own: those of a batch are gone when nanoarrow lets go of
    it.
    """
    validity = None if column.validity is None else column.validity.copy()
    buffers, children = (
        tuple(buffer.copy() for buffer in column.buffers),
        tuple(owned(child) for child in column.children),
    )
    return Column(column.type, column.length, column.offset, validity, buffers, children)


def column_array(column: Column) -> Array:
    """The column as a NumPy array.

    Numbers and bool: an array of the column's type, a masked one (np.ma) when rows are null. Text,
    lists and structs: an object array of str, tuples, ValueRef or dict, None where null.
    """
    if column.type not in NUMBERS and column.type != "bool":
        return np.fromiter(column_values(column), dtype=object, count=column.length)
    first, last = column.offset, column.offset + column.length
    data = (
        _bits(column.buffers[0], first, column.length)
        if column.type == "bool"
        else column.buffers[0][first:last]
    )
    valid = valid_rows(column)
    return data if valid is None else np.ma.MaskedArray(data, mask=~valid)


def rows_of_columns(table: str, columns: Sequence[Column]) -> Iterator[Any]:
    """Records of a table from all its columns in schema order."""
    record, names = RECORDS[table], list(TABLES[table])
    for row in zip(*(column_values(column) for column in columns), strict=True):
        yield record(**dict(zip(names, row, strict=True)))


def struct_columns(types: dict[str, str], array: Any) -> list[Column]:
    """The columns of a struct array (anything with __arrow_c_array__), which must have these
    columns in this order.
    """
    view = nanoarrow.c_array(array).view()
    return [
        sliced(column_of_view(kind, view.child(i)), view.offset, view.length)
        for i, kind in enumerate(types.values())
    ]


def decode_stream(table: str, stream: ArrowStream) -> Iterator[Any]:
    """Records of a table, batch by batch; works on runs larger than memory. FormatError when a
    batch is damaged.
    """
    for batch in stream_batches(table, stream):
        yield from rows_of_columns(table, struct_columns(TABLES[table], batch))


def stream_batches(table: str, stream: ArrowStream) -> Iterator[CArray]:
    """The batches of a stream; FormatError, naming the table, when one is damaged."""
    with nanoarrow.c_array_stream(stream) as arrays:
        while True:
            try:
                array = next(arrays, None)
            except (RuntimeError, FormatError) as error:
                raise FormatError(
                    f"table {table}", f"damaged: {' '.join(str(error).split())}"
                ) from error
            if array is None:
                return
            yield array


class StoredRecords(Mapping[str, Column]):
    """Records in memory as columns as they lie in Arrow, made when they are looked up."""

    def __init__(self, table: str, rows: Sequence[msgspec.Struct]) -> None:
        self._types = TABLES[table]
        self._rows = rows
        self._known: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self._known:
            kind = self._types[name]
            encoded = encode_column(kind, [getattr(row, name) for row in self._rows])
            view = nanoarrow.c_array(encoded).view()
            self._known[name] = owned(column_of_view(kind, view))
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)


class RecordColumns(Batch):
    """The same as arrays, of the columns with these names."""

    def __init__(self, table: str, names: Sequence[str], rows: Sequence[msgspec.Struct]) -> None:
        self._table = table
        self._names = tuple(names)
        self._rows = rows
        self._stored = StoredRecords(table, rows)
        self._known: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._known:
            if name not in self._names:
                raise KeyError(name)
            self._known[name] = column_array(self._stored[name])
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def at(self, rows: Ints) -> RecordColumns:
        """These rows, by their number here."""
        return RecordColumns(self._table, self._names, [self._rows[row] for row in rows.tolist()])


def stream_columns(
    table: str, stream: ArrowStream, names: Sequence[str]
) -> Iterator[dict[str, Array]]:
    """Some columns of the batches of a stream as NumPy arrays of their own; see column_array."""
    order = list(TABLES[table])
    for batch in stream_batches(table, stream):
        arrays = struct_columns(TABLES[table], batch)
        yield {name: column_array(owned(arrays[order.index(name)])) for name in names}


class RowsTable:
    """A table over records in memory, ROWS_PER_BATCH rows at a time, encoded when it is first read:
    a database reads a table once for each question.
    """

    def __init__(self, table: str, rows: Sequence[msgspec.Struct]) -> None:
        self._types = PROCESS_TYPES if table == "processes" else TABLES[table]
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream = CArrayStream.from_c_arrays(self._batches, schema_of(self._types))
        return stream.__arrow_c_stream__(requested_schema)

    @cached_property
    def _batches(self) -> list[CArray]:
        starts = range(0, len(self._rows), ROWS_PER_BATCH)
        return [self._encode(self._rows[start : start + ROWS_PER_BATCH]) for start in starts]

    def _encode(self, rows: Sequence[msgspec.Struct]) -> CArray:
        return encode_columns(
            self._types, [[getattr(row, name) for row in rows] for name in self._types]
        )
