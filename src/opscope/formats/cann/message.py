# SPDX-License-Identifier: Apache-2.0
"""The messages of a CANN dump header (package toolkit.dumpdata, proto3) as frozen records.

Field numbers are those of the public schema that msaccucmp, adump and MindSpore share; input and
output number the same ideas differently. A field that a producer did not write has its default
here, and fields no schema names are kept in `unknown`, so that a header read and written again is
the same bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from opscope.formats.cann.wire import Field, Message


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Dimensions; an empty one that was written is not the same as none."""

    dim: tuple[int, ...] = ()
    unknown: bytes = b""


class OriginalOp(msgspec.Struct, frozen=True, kw_only=True):
    """The operator of the user's graph that an output stands for."""

    name: str = ""
    output_index: int = 0
    data_type: int = 0
    format: int = 0
    unknown: bytes = b""


class DimRange(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of one dimension (L1/L2 fusion)."""

    dim_start: int = 0
    dim_end: int = 0
    unknown: bytes = b""


class TensorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output; the fields that only one of them has keep their default in the other.

    size is in bytes, address and offset are the device's; sub_format holds the groups of a grouped
    convolution's weight. data is where the bytes lie when the header itself holds them (the old
    form).
    """

    data_type: int = 0
    format: int = 0
    shape: Shape | None = None
    original_shape: Shape | None = None
    size: int = 0
    sub_format: int = 0
    address: int = 0
    offset: int = 0
    arg_index: int = 0
    input_type: int = 0
    original_op: OriginalOp | None = None
    dim_range: tuple[DimRange, ...] = ()
    address_type: int = 0
    data: Any = None
    unknown: bytes = b""


class BufferEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An on-chip buffer (L1)."""

    buffer_type: int = 0
    size: int = 0
    data: Any = None
    unknown: bytes = b""


class SpaceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace (type 0: the operator's log)."""

    type: int = 0
    size: int = 0
    arg_index: int = 0
    data: Any = None
    unknown: bytes = b""


class Attribute(msgspec.Struct, frozen=True, kw_only=True):
    """A named text; of FFTS tasks the first holds the slicing as JSON."""

    name: str = ""
    value: str = ""
    unknown: bytes = b""


class DumpData(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The header of a dump file; dump_time is microseconds since the epoch."""

    version: str = ""
    dump_time: int = 0
    output: tuple[TensorEntry, ...] = ()
    input: tuple[TensorEntry, ...] = ()
    buffer: tuple[BufferEntry, ...] = ()
    op_name: str = ""
    attr: tuple[Attribute, ...] = ()
    space: tuple[SpaceEntry, ...] = ()
    dfx_message: str = ""
    unknown: bytes = b""

    def entries(self) -> tuple[TensorEntry | BufferEntry | SpaceEntry, ...]:
        """Everything that has bytes in the file, in the order the bytes lie there."""
        return (*self.input, *self.output, *self.buffer, *self.space)


_SHAPE = Message(Shape, (Field(1, "dim", "dims"),))
_ORIGINAL = Message(
    OriginalOp,
    (
        Field(1, "name", "text"),
        Field(2, "output_index", "uint"),
        Field(3, "data_type", "int"),
        Field(4, "format", "int"),
    ),
)
_RANGE = Message(DimRange, (Field(1, "dim_start", "int"), Field(2, "dim_end", "int")))
_ATTRIBUTE = Message(Attribute, (Field(1, "name", "text"), Field(2, "value", "text")))


def _message(record: type[Any], fields: tuple[Field, ...], *, inline: bool) -> Message:
    """Schema of an entry; without inline, bytes in the header are an unknown field."""
    return Message(record, tuple(field for field in fields if inline or field.kind != "span"))


def _dump(*, inline: bool) -> Message:
    outputs = (
        Field(1, "data_type", "int"),
        Field(2, "format", "int"),
        Field(3, "shape", "one", _SHAPE),
        Field(4, "original_op", "one", _ORIGINAL),
        Field(5, "data", "span"),
        Field(6, "size", "uint"),
        Field(7, "original_shape", "one", _SHAPE),
        Field(8, "sub_format", "int"),
        Field(9, "address", "uint"),
        Field(10, "dim_range", "many", _RANGE),
        Field(11, "offset", "uint"),
        Field(12, "arg_index", "uint"),
    )
    inputs = (
        Field(1, "data_type", "int"),
        Field(2, "format", "int"),
        Field(3, "shape", "one", _SHAPE),
        Field(4, "data", "span"),
        Field(5, "size", "uint"),
        Field(6, "original_shape", "one", _SHAPE),
        Field(7, "sub_format", "int"),
        Field(8, "address", "uint"),
        Field(9, "offset", "uint"),
        Field(10, "arg_index", "uint"),
        Field(11, "input_type", "uint"),
    )
    buffers = (Field(1, "buffer_type", "int"), Field(2, "data", "span"), Field(3, "size", "uint"))
    spaces = (
        Field(1, "type", "int"),
        Field(2, "data", "span"),
        Field(3, "size", "uint"),
        Field(4, "arg_index", "uint"),
    )
    return Message(
        DumpData,
        (
            Field(1, "version", "text"),
            Field(2, "dump_time", "uint"),
            Field(3, "output", "many", _message(TensorEntry, outputs, inline=inline)),
            Field(4, "input", "many", _message(TensorEntry, inputs, inline=inline)),
            Field(5, "buffer", "many", _message(BufferEntry, buffers, inline=inline)),
            Field(6, "op_name", "text"),
            Field(7, "attr", "many", _ATTRIBUTE),
            Field(8, "space", "many", _message(SpaceEntry, spaces, inline=inline)),
            Field(9, "dfx_message", "text"),
        ),
    )


HEADER = _dump(inline=False)
# What a list of calls needs; entries are passed over.
SUMMARY = Message(
    DumpData, tuple(field for field in HEADER.fields if field.number in (1, 2, 6, 7)), lossy=True
)
INLINE = _dump(inline=True)
