# SPDX-License-Identifier: Apache-2.0
"""The exception dump of a kernel: its tensors, with the types the dump leaves out, and what is
wrong with their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.ascend.cores import values_in
from opscope.ascend.fault import Fault
from opscope.ascend.tensors import KernelTensor
from opscope.errors import FormatError, MissingValueError
from opscope.formats.cann import corefile, dumpfile, elements, names, tensor
from opscope.formats.cann.dtypes import BY_NAME, UNDEFINED
from opscope.run.dtypes import find_dtype

if TYPE_CHECKING:
    from opscope.arrays import Array
    from opscope.formats.cann.corefile import CoreFile
    from opscope.formats.cann.dumpfile import DumpFile

_TILING = 7
_CORE = "core"
_INVALID_WORDS = ("address maybe invalid", "addr info failed", "D2H failed", "data invalid")


class DumpedTensor(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of a dump: its statistics and what stands out.

    zeroed: all bytes are zero and the log or dump says that copying failed, so these are no values.
    values_read is false where the dump has no type and none was found elsewhere. entry is its
    position among the dump's tensors of that side.
    """

    io: str
    index: int
    entry: int
    entry_io: str
    dtype: str | None
    shape: tuple[int, ...]
    size: int
    statistics: dict[str, Any] = {}
    denormal: int = 0
    all_zero: bool = False
    zeroed: bool = False
    partial: bool = False
    troubles: tuple[str, ...] = ()
    label: str


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """What an exception dump holds."""

    file: str
    op_name: str
    tensors: tuple[DumpedTensor, ...] = ()
    message: str = ""
    problems: tuple[str, ...] = ()

    @property
    def unsound(self) -> tuple[DumpedTensor, ...]:
        """Inputs with NaN or Inf, or whose memory could not be read."""
        return tuple(tensor for tensor in self.tensors if tensor.io == "input" and tensor.troubles)


def find_dump(paths: Sequence[Path], fault: Fault, node_names: Sequence[str]) -> Path | None:
    """The dump of this error among dump files: the file the log names, else that of its task, else
    of its node.
    """
    named = {
        file.path.replace("\\", "/").rpartition("/")[2]
        for file in fault.dump_files
        if file.what == "exception"
    }
    for path in paths:
        if path.name in named:
            return path
    parsed = [
        (path, name)
        for path in paths
        if (name := names.parse(path.name)) is not None and not name.opdebug
    ]
    for path, name in parsed:
        if (
            name.exception
            and fault.task is not None
            and (name.task, name.stream) == (fault.task, fault.stream)
        ):
            return path
    wanted = {names.sanitised(one) for one in node_names}
    for path, name in parsed:
        if name.op_name in wanted and name.task in (fault.task, None):
            return path
    if fault.kernel is None:
        return None
    alone = [
        path
        for path, name in parsed
        if name.op_name
        and names.sanitised(fault.kernel).endswith(f"_{name.op_name}")
        and name.task == fault.task
    ]
    return alone[0] if len(alone) == 1 else None


def read_dump(path: Path, tensors: Sequence[KernelTensor], *, failed: Sequence[str] = ()) -> Dump:
    """A dump with its values examined; failed are lines of the log that a copy failed. FormatError
    for a file that is no dump.
    """
    file = dumpfile.read(path)
    lines = [
        line
        for line in (*file.header.dfx_message.splitlines(), *failed)
        if any(word in line for word in _INVALID_WORDS)
    ]
    dumped: list[DumpedTensor] = []
    problems: list[str] = []
    for io, entry, as_io, index in _sides(file, tensors):
        try:
            dumped.append(_one(file, (io, entry), (as_io, index), tensors=tensors, failed=lines))
        except (FormatError, MissingValueError) as error:  # noqa: PERF203 - one bad tensor leaves the others
            problems.append(str(error))
    return Dump(
        file=str(path),
        op_name=file.header.op_name,
        tensors=tuple(dumped),
        message=file.header.dfx_message,
        problems=tuple(problems),
    )


def _sides(file: DumpFile, tensors: Sequence[KernelTensor]) -> list[tuple[str, int, str, int]]:
    """Each tensor of the dump and what it is in the call: a dump without kinds lists everything as
    inputs, in argument order.
    """
    rows: list[tuple[str, int, str, int]] = []
    counted = 0
    call = [
        (tensor.io, tensor.index)
        for tensor in tensors
        if tensor.part == 0 and tensor.io in ("input", "output", "workspace")
    ]
    flat = not file.header.output and any(io == "output" for io, _ in call)
    for entry, described in enumerate(file.header.input):
        if described.input_type == _TILING:
            rows.append(("input", entry, "tiling", 0))
        elif flat and counted < len(call):
            rows.append(("input", entry, *call[counted]))
            counted += 1
        else:
            rows.append(("input", entry, "input", counted))
            counted += 1
    rows += [("output", entry, "output", entry) for entry in range(len(file.header.output))]
    return rows


def _one(
    file: DumpFile,
    at: tuple[str, int],
    in_call: tuple[str, int],
    *,
    tensors: Sequence[KernelTensor],
    failed: Sequence[str],
) -> DumpedTensor:
    (io, entry), (as_io, index) = at, in_call
    header = tensor.tensors(file, io)[entry]
    known = next(
        (
            tensor
            for tensor in tensors
            if (tensor.io, tensor.index, tensor.part) == (as_io, index, 0)
        ),
        None,
    )
    partial = not file.whole(tensor.place(file, io, entry))
    values, dtype, shape = _values(file, io, entry, known if as_io != "tiling" else None)
    raw = file.payload(tensor.place(file, io, entry))
    all_zero = bool(raw.size) and not raw.any()
    unreadable = known is not None and known.unreadable is not None
    zeroed = all_zero and (unreadable or _names_it(failed, header.address, known))
    statistics, denormal = (
        _statistics(values, dtype) if values is not None and not zeroed else ({}, 0)
    )
    troubles = _troubles(statistics, zeroed=zeroed, partial=partial)
    return DumpedTensor(
        io=as_io,
        index=index,
        entry=entry,
        entry_io=io,
        dtype=dtype,
        shape=shape,
        size=header.size,
        statistics=statistics,
        denormal=denormal,
        all_zero=all_zero,
        zeroed=zeroed,
        partial=partial,
        troubles=troubles,
        label=f"{as_io} {index}",
    )


def _names_it(failed: Sequence[str], address: int, known: KernelTensor | None) -> bool:
    """Whether a line about a failed copy is about this tensor: by its address where the line has
    one, else all zeros count.
    """
    addresses = {address, known.address if known is not None else 0} - {0, None}
    for line in failed:
        lowered = line.lower()
        if "0x" not in lowered or any(f"{address:#x}" in lowered for address in addresses):
            return True
    return False


def values_of(path: str, dumped: DumpedTensor, tensors: Sequence[KernelTensor]) -> Array | None:
    """Elements of a dumped tensor in the shape of the call; None where its type is not known or the
    file is torn.
    """
    known = next(
        (
            other
            for other in tensors
            if (other.io, other.index, other.part) == (dumped.io, dumped.index, 0)
        ),
        None,
    )
    if dumped.entry_io == _CORE:
        return _typed(_core_bytes(path, dumped), known)[0]
    file = dumpfile.read(path)
    try:
        return _values(
            file, dumped.entry_io, dumped.entry, known if dumped.io != "tiling" else None
        )[0]
    except (FormatError, MissingValueError):
        return None


def _values(
    file: DumpFile, io: str, entry: int, known: KernelTensor | None
) -> tuple[Array | None, str | None, tuple[int, ...]]:
    seen = tensor.view(file, io, entry)
    if seen.kind is not UNDEFINED:
        if seen.partial:
            return None, seen.kind.name, seen.host_shape
        values = tensor.host(tensor.device(file, io, entry, seen), seen)
        return values, seen.kind.name, values.shape
    return _typed(file.payload(tensor.place(file, io, entry)), known)


def _typed(
    raw: Array, known: KernelTensor | None
) -> tuple[Array | None, str | None, tuple[int, ...]]:
    """Elements of bytes whose type the call knows; None where it does not."""
    dtype = find_dtype(known.dtype) if known is not None and known.dtype else None
    if dtype is None or known is None or not dtype.bits or dtype.name not in BY_NAME:
        return None, None, (int(raw.size),)
    kind = BY_NAME[dtype.name]
    shape = (
        known.shape
        if known.shape is not None and kind.nbytes(prod(known.shape)) == raw.size
        else (kind.fit(int(raw.size)),)
    )
    return elements.decode(raw, kind, prod(shape)).reshape(shape), dtype.name, shape


def _statistics(values: Array, dtype: str | None) -> tuple[dict[str, Any], int]:
    import numpy as np

    from opscope.kernels import statistics
    from opscope.narrow import limits, widened

    if not values.size or dtype is None:
        return {"size": 0}, 0
    measured = statistics(values, digest=False)
    row = {
        name: getattr(measured, name)
        for name in (
            "size",
            "nan",
            "pos_inf",
            "neg_inf",
            "zero",
            "min",
            "max",
            "mean",
            "l2norm",
            "min_int",
            "max_int",
        )
    }
    denormal = 0
    wide = widened(values)
    if wide.dtype.kind == "f":
        smallest = limits(values.dtype).smallest_normal
        wide = np.abs(wide.astype(np.result_type(wide.dtype, np.float32), copy=False))
        denormal = int(np.count_nonzero((wide > 0) & (wide < smallest)))
    return {name: value for name, value in row.items() if value is not None}, denormal


def _troubles(statistics: dict[str, Any], *, zeroed: bool, partial: bool) -> tuple[str, ...]:
    troubles = [
        f"{statistics[name]} {word}"
        for name, word in (("nan", "NaN"), ("pos_inf", "Inf"), ("neg_inf", "-Inf"))
        if statistics.get(name)
    ]
    if zeroed:
        troubles.append("all zero, because the memory could not be copied: these are no values")
    if partial:
        troubles.append("not whole in the file")
    return tuple(troubles)


def device_values_of(path: str, dumped: DumpedTensor) -> Array | None:
    """Elements as they lie on the device, in the device's shape; None where the dump has no type
    for them or is torn.
    """
    if dumped.entry_io == _CORE:
        return None
    file = dumpfile.read(path)
    try:
        seen = tensor.view(file, dumped.entry_io, dumped.entry)
        return (
            None
            if seen.kind is UNDEFINED or seen.partial
            else tensor.device(file, dumped.entry_io, dumped.entry, seen)
        )
    except (FormatError, MissingValueError):
        return None


def raw_of(path: str, dumped: DumpedTensor) -> bytes:
    """Bytes of a dumped tensor as they lie in the file."""
    if dumped.entry_io == _CORE:
        return _core_bytes(path, dumped).tobytes()
    file = dumpfile.read(path)
    return file.payload(tensor.place(file, dumped.entry_io, dumped.entry)).tobytes()


def dump_of_core(core: CoreFile, tensors: Sequence[KernelTensor]) -> Dump | None:
    """The memory of a .core file as a dump; None where none of the call's tensors is in it."""
    dumped = []
    for argument in tensors:
        raw = (
            values_in(core, argument.io, argument.index)
            if argument.part == 0 and argument.io in ("input", "output", "unknown")
            else None
        )
        if raw is None:
            continue
        values, dtype, shape = _typed(_flat(raw), argument)
        statistics, denormal = _statistics(values, dtype) if values is not None else ({}, 0)
        partial = argument.size is not None and len(raw) < argument.size
        dumped.append(
            DumpedTensor(
                io=argument.io,
                index=argument.index,
                entry=argument.index,
                entry_io=_CORE,
                dtype=dtype,
                shape=shape,
                size=len(raw),
                statistics=statistics,
                denormal=denormal,
                all_zero=not any(raw),
                partial=partial,
                troubles=_troubles(statistics, zeroed=False, partial=partial),
                label=f"{argument.io} {argument.index}",
            )
        )
    return Dump(file=core.path, op_name=core.kernel, tensors=tuple(dumped)) if dumped else None


def _core_bytes(path: str, dumped: DumpedTensor) -> Array:
    return _flat(values_in(corefile.read(Path(path)), dumped.io, dumped.index) or b"")


def _flat(raw: bytes) -> Array:
    import numpy as np

    return np.frombuffer(raw, np.uint8)
