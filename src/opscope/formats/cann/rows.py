# SPDX-License-Identifier: Apache-2.0
"""Tensor rows of a call, and the values behind them, slices put together."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from opscope.errors import FormatError, MissingValueError
from opscope.formats.cann import dumpfile, ffts, tensor
from opscope.formats.cann.dtypes import UNDEFINED
from opscope.run.schema import Call, Tensor, ValueRef

if TYPE_CHECKING:
    from pathlib import Path

    from opscope.arrays import Array
    from opscope.formats.cann.calls import Operators
    from opscope.formats.cann.dumpfile import DumpFile
    from opscope.formats.cann.tensor import TensorView
    from opscope.formats.cann.tree import Operator, Source
    from opscope.run.dtypes import DType

_INT64 = 1 << 63
# Kinds of arguments in dumps of failed kernels (DfxTensorType of the runtime's dump writer).
_ROLES = {
    4: "workspace",
    5: "log",
    6: "communication context",
    7: "tiling",
    8: "L1 buffer",
    9: "L2 buffer",
    10: "overflow address",
}
_UNREADABLE = ("the address maybe invalid", "D2H failed")


class Opened(msgspec.Struct, frozen=True):
    """A call's operator with its (first) file open."""

    call: Call
    operator: Operator
    file: DumpFile


class Rows:
    """Drafts and loads the tensors of calls; problems met on the way are appended to late."""

    def __init__(self, root: Path, operators: Operators, late: list[str]) -> None:
        self._root = root
        self._operators = operators
        self._cut = {
            operator.first.path: operator
            for operator in operators.values()
            if operator.first.slicing is not None
        }
        self._late = late
        # Rows of one file are measured one after the other; its header need not be read for each.
        self._read = lru_cache(maxsize=256)(dumpfile.read)

    def draft(self, call: Call) -> list[Tensor]:
        """Tensor rows of a call but for what must be measured; a file that cannot be read leaves a
        line in late.
        """
        operator = self._operators.get((call.process, call.index))
        if operator is None:
            return []
        try:
            opened = Opened(call, operator, dumpfile.read(self._root / operator.first.path))
        except FormatError as error:
            self._late.append(str(error))
            return []
        sides = [
            (io, index)
            for io in ("input", "output")
            for index in range(len(tensor.tensors(opened.file, io)))
        ]
        return [row for io, index in sides if (row := self._one(opened, io, index)) is not None]

    def _one(self, opened: Opened, io: str, index: int) -> Tensor | None:
        try:
            row = _row(opened, io, index)
        except FormatError as error:
            self._late.append(str(error))
            return None
        if row.partial:
            self._late.append(
                f"{opened.file.path}: {io} {index} is not whole in the dump; it has no statistics"
            )
        return row

    def load(self, path: Path, key: str, dtype: DType | None) -> Array:
        """Values of tensor key ("input.0") of the file at path, in host order; what dtype says is
        in the file itself.
        """
        del dtype
        io, _, number = key.partition(".")
        index = int(number)
        operator = self._cut.get(path.relative_to(self._root.resolve()).as_posix())
        if operator is not None:
            return _whole(
                [(self._root / source.path, source) for source in operator.sources], io, index
            )
        file = self._read(path)
        if index >= len(tensor.tensors(file, io)):
            raise MissingValueError(f"{path}: has no {io} {index}")
        seen = tensor.view(file, io, index)
        return tensor.host(tensor.device(file, io, index, seen), seen)


def _row(opened: Opened, io: str, index: int) -> Tensor:
    file, operator = opened.file, opened.operator
    entry = tensor.tensors(file, io)[index]
    seen = _slice(file, operator.first, io, index)
    joined = len(operator.sources) > 1
    whole = not (seen.partial or _lost(file, io, index) or (joined and not _joins(operator, io)))
    measured = seen.kind is not UNDEFINED and seen.kind.bits > 0
    return Tensor(
        process=opened.call.process,
        index=opened.call.index,
        io=io,
        slot=str(index),
        storage=entry.address
        if 0 < entry.address < _INT64 and file.form != dumpfile.NANO
        else None,
        offset=entry.offset if 0 < entry.offset < _INT64 else None,
        dtype=seen.kind.name,
        shape=None if joined else seen.host_shape,
        device=opened.call.device,
        layout=seen.layout,
        role=_ROLES.get(entry.input_type),
        partial=not whole,
        value=ValueRef(operator.first.path, f"{io}.{index}") if whole and measured else None,
    )


def _lost(file: DumpFile, io: str, index: int) -> bool:
    """Whether zeros stand for memory that the dump's writer could not read: it says so in one text
    for the whole file.
    """
    if not any(sign in file.header.dfx_message for sign in _UNREADABLE):
        return False
    return not file.payload(tensor.place(file, io, index)).any()


def _joins(operator: Operator, io: str) -> bool:
    """Whether slices of this side are known to be the whole: inputs of manual slices are only what
    each slice read.
    """
    slicing = operator.first.slicing
    return slicing is not None and (io == "output" or slicing.auto)


def _slice(file: DumpFile, source: Source, io: str, index: int) -> TensorView:
    """What the header says of a tensor, or of its slice in this file."""
    shape = (
        source.slicing.shape(io, index, source.name.thread or 0)
        if source.slicing is not None
        else None
    )
    return tensor.view(file, io, index, shape=shape)


def _whole(files: list[tuple[Path, Source]], io: str, index: int) -> Array:
    """A tensor from all its slices, in host order."""
    opened = [(dumpfile.read(path), source) for path, source in files]
    for file, _ in opened:
        if index >= len(tensor.tensors(file, io)):
            raise MissingValueError(f"{file.path}: has no {io} {index}")
    seen = [_slice(file, source, io, index) for file, source in opened]
    pieces = [
        tensor.device(file, io, index, view) for (file, _), view in zip(opened, seen, strict=True)
    ]
    slicing = files[0][1].slicing
    values = ffts.merge(
        pieces, slicing.axis(io, index) if slicing is not None and len(files) > 1 else None
    )
    entry = tensor.tensors(opened[0][0], io)[index]
    return tensor.host(values, tensor.joined(seen[0], entry, values.shape))
