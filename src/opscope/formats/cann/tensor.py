# SPDX-License-Identifier: Apache-2.0
"""One tensor of a dump file: its element type, its shape on the device and on the host, and its
elements in either order.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import msgspec

from opscope.errors import FormatError, MissingValueError
from opscope.formats import layouts, opdebug
from opscope.formats.cann import elements
from opscope.formats.cann.dtypes import UNDEFINED, ElementType, element_type, format_name
from opscope.formats.cann.message import TensorEntry
from opscope.formats.layouts import Origin, plain
from opscope.formats.npy import in_shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opscope.arrays import Array
    from opscope.formats.cann.dumpfile import DumpFile

_NEGATIVE = 1 << 63
_LARGEST = 1 << 56  # elements, of sixteen bytes each, that can still be counted in 63 bits


class TensorView(msgspec.Struct, frozen=True, kw_only=True):
    """What a header says of a tensor, settled: shape is the device's, origin the host's or None
    when it is not known.

    partial: the file holds fewer bytes than the shape needs. groups is that of a grouped weight.
    """

    kind: ElementType
    layout: str
    shape: tuple[int, ...]
    origin: Origin | None
    groups: int
    partial: bool

    @property
    def host_shape(self) -> tuple[int, ...]:
        """Shape of the elements that `host` gives."""
        return self.shape if self.origin is None else self.origin.shape


def tensors(file: DumpFile, io: str) -> tuple[TensorEntry, ...]:
    """Entries of one side, "input" or "output"."""
    return file.header.input if io == "input" else file.header.output


def place(file: DumpFile, io: str, index: int) -> int:
    """Position of a tensor among all the entries of the file."""
    return index if io == "input" else len(file.header.input) + index


def overflow_records(file: DumpFile) -> Iterator[opdebug.OverflowRecord]:
    """The overflow records that a file's outputs are, in their order; FormatError where one is
    none.
    """
    for index in range(len(file.header.output)):
        at = place(file, "output", index)
        yield opdebug.decode(file.payload(at).tobytes(), file.path, offset=file.spans[at].offset)


def view(
    file: DumpFile, io: str, index: int, *, shape: tuple[int, ...] | None = None
) -> TensorView:
    """Settles what the header says of one tensor; shape, where given, overrules the header's (FFTS+
    slices).

    Raises FormatError for a shape that cannot be one.
    """
    entry = tensors(file, io)[index]
    span = file.spans[place(file, io, index)]
    kind = element_type(entry.data_type)
    if shape is None:
        shape = _device_shape(file, entry, kind, span.length)
    if prod(dim for dim in shape if dim) >= _LARGEST:
        raise FormatError(
            file.path,
            f"{io} {index} has the shape {list(shape)}, which no tensor has",
            offset=span.offset,
        )
    needed = kind.nbytes(prod(shape)) if kind.bits else entry.size
    if needed > span.length and file.whole(place(file, io, index)):
        reason = (
            f"{io} {index} is {kind.name} {list(shape)}, which needs {needed} bytes; the "
            f"header gives it {entry.size}"
        )
        raise FormatError(file.path, reason, offset=span.offset)
    layout = format_name(entry.format)
    groups = max(1, entry.sub_format)
    return TensorView(
        kind=kind,
        layout=layout,
        shape=shape,
        origin=None if kind is UNDEFINED else origin(entry, layout, shape, groups),
        groups=groups,
        partial=needed > span.length,
    )


def _device_shape(
    file: DumpFile, entry: TensorEntry, kind: ElementType, held: int
) -> tuple[int, ...]:
    dims = entry.shape.dim if entry.shape is not None else ()
    if any(dim >= _NEGATIVE for dim in dims):
        raise FormatError(
            file.path,
            f"a dimension of {[dim - (1 << 64) if dim >= _NEGATIVE else dim for dim in dims]} "
            "is negative",
            offset=8,
        )
    if kind is UNDEFINED:
        return (held,)
    if dims or not entry.size or not kind.bits:
        return dims
    count = kind.fit(entry.size)
    return () if count == 1 else (count,)


def origin(entry: TensorEntry, layout: str, shape: tuple[int, ...], groups: int) -> Origin | None:
    """What a device tensor of this shape is on the host by the header's original shape and format,
    or None.
    """
    said = entry.original_shape
    if said is None or any(dim >= _NEGATIVE for dim in said.dim):
        return None
    original = (format_name(entry.original_op.format),) if entry.original_op is not None else ()
    prefer = (*original, layout) if plain.is_plain(layout) else original
    resolved = layouts.resolve(layout, shape, said.dim, groups=groups, prefer=prefer)
    if (
        resolved is not None
        or layouts.is_private(layout)
        or not said.dim
        or prod(said.dim) != prod(shape)
    ):
        return resolved
    return Origin(said.dim, "ND", said.dim) if layout == "ND" else None


def device(file: DumpFile, io: str, index: int, seen: TensorView) -> Array:
    """Elements in the order and shape they have on the device; a view of the mapped file where the
    type allows it.

    Raises MissingValueError when the file does not hold all of them or nobody described their type.
    """
    if seen.partial:
        raise MissingValueError(f"{file.path}: {io} {index} is only partly in the file")
    payload = file.payload(place(file, io, index))
    return in_shape(elements.decode(payload, seen.kind, prod(seen.shape)), seen.shape, file.path)


def joined(seen: TensorView, entry: TensorEntry, shape: tuple[int, ...]) -> TensorView:
    """The view of a tensor that was put together from slices and has this shape."""
    return msgspec.structs.replace(
        seen, shape=shape, origin=origin(entry, seen.layout, shape, seen.groups), partial=False
    )


def host(values: Array, seen: TensorView) -> Array:
    """Elements in host order and shape, given those of the device; as they are where the host's
    shape is not known.
    """
    if seen.origin is None:
        return values
    if seen.layout not in layouts.BY_NAME:
        return values.reshape(seen.origin.shape)
    return layouts.to_host(values, seen.layout, seen.origin, groups=seen.groups)
