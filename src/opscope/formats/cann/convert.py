# SPDX-License-Identifier: Apache-2.0
"""Converts dump files: each tensor to one file, in the device's order or in a layout that is asked
for.

What cannot be converted is left out and reported; the rest of the file, and of the directory, is
written.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opscope.errors import FormatError, MissingValueError, UsageError
from opscope.formats import layouts, opdebug
from opscope.formats.cann import compat, dumpfile, ffts, names, tensor
from opscope.formats.cann.codes import Code, RefusedError
from opscope.formats.cann.output import BIN, NPY, Output, Piece
from opscope.formats.cann.wire import Span
from opscope.formats.layouts import plain
from opscope.narrow import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opscope.arrays import Array, Bytes
    from opscope.formats.cann.dumpfile import DumpFile
    from opscope.formats.cann.tensor import TensorView

_FOUR_AXES = ("NCHW", "NHWC", "HWCN")
ONE_BYTE_C0, OTHER_C0 = 32, 16


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to make of each file; layout None keeps the device's order, shape is that of one named
    file.

    inputs and outputs are which of them to write (None: all); strict refuses an index that a file
    does not have; lenient leaves a tensor that has no axes for the layout in the host's order
    instead of refusing it. exact does as the reference tool does, where it is wrong too.
    """

    kind: str = NPY
    layout: str | None = None
    shape: tuple[int, ...] = ()
    inputs: tuple[int, ...] | None = None
    outputs: tuple[int, ...] | None = None
    strict: bool = False
    lenient: bool = False
    exact: bool = False

    @property
    def everything(self) -> bool:
        """Whether all tensors of a file are wanted."""
        return self.inputs is None and self.outputs is None


class Failure(msgspec.Struct, frozen=True):
    """A file that could not be converted, or not all of it: the documented code, why, and which
    tensors.
    """

    path: Path
    code: Code
    reasons: tuple[str, ...]
    tensors: tuple[str, ...] = ()


def convert(
    files: Iterable[tuple[str | Path, Output]],
    request: Request,
    *,
    jobs: int,
    done: Callable[[], None],
) -> list[Failure]:
    """Convert files in parallel, each into its output; done is called after each. Answers the
    failures in the order of files.
    """
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        futures = [pool.submit(convert_file, path, request, output) for path, output in files]
        try:
            for future in futures:
                future.add_done_callback(lambda _: done())
            return [failure for future in futures if (failure := future.result()) is not None]
        except BaseException:  # Ctrl-C above all: what has not begun is not begun
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def convert_file(path: str | Path, request: Request, output: Output) -> Failure | None:
    """Convert one file; None when all of it was written."""
    try:
        file = dumpfile.read(path)
        if _is_overflow_record(os.path.basename(path), output, request):  # noqa: PTH119 - one of very many files
            overflow_json(file, output)
            return None
        failed = _tensors(file, request, output)
        if request.layout is None and request.everything:
            _rest(file, request, output)
    except FormatError as error:
        code = (
            Code.OVERFLOW_TYPE if isinstance(error, opdebug.UnknownUnitError) else _parse_code(path)
        )
        return Failure(Path(path), code, (str(error),))
    except RefusedError as error:
        return Failure(Path(path), error.code, (str(error),))
    except MemoryError:
        return Failure(
            Path(path), Code.DUMP_DATA, (f"{path}: too large for this machine's memory",)
        )
    if not failed:
        return None
    return Failure(
        Path(path),
        failed[-1][1].code,
        tuple(str(error) for _, error in failed),
        tuple(which for which, _ in failed),
    )


def _parse_code(path: str | Path) -> Code:
    return Code.NANO if dumpfile.sniff(path) == dumpfile.NANO else Code.DUMP_DATA


def _is_overflow_record(name: str, output: Output, request: Request) -> bool:
    return (
        name.startswith("Opdebug.Node_OpDebug.")
        if request.exact
        else names.is_opdebug(output.known_as(name))
    )


def overflow_json(file: DumpFile, output: Output) -> list[opdebug.OverflowRecord]:
    """Write each payload of an overflow record as the documented JSON. Raises FormatError."""
    records = []
    for index, record in enumerate(tensor.overflow_records(file)):
        output.raw(
            f"{Path(file.path).name}.output.{index}.json",
            json.dumps(record.document, indent=4).encode(),
        )
        records.append(record)
    return records


def _tensors(file: DumpFile, request: Request, output: Output) -> list[tuple[str, RefusedError]]:
    """Write the tensors that are wanted; answers those that could not be, and why."""
    attempts = [
        (f"{side}:{index}", _attempt(file, request, output, (side, index)))
        for side, index in _wanted(file, request)
    ]
    return [(which, error) for which, error in attempts if error is not None]


def _attempt(
    file: DumpFile, request: Request, output: Output, which: tuple[str, int]
) -> RefusedError | None:
    try:
        write_tensor(file, request, output, *which)
    except RefusedError as error:
        return error
    return None


def _wanted(file: DumpFile, request: Request) -> list[tuple[str, int]]:
    wanted: list[tuple[str, int]] = []
    for side, numbers in (("input", request.inputs), ("output", request.outputs)):
        count = len(tensor.tensors(file, side))
        for index in range(count) if numbers is None else numbers:
            if index < count:
                wanted.append((side, index))
            elif request.strict:
                raise RefusedError(
                    Code.INDEX, f"{file.path}: has {count} {side}s, so none with index {index}"
                )
    return wanted


def write_tensor(file: DumpFile, request: Request, output: Output, side: str, index: int) -> Path:
    """Write one tensor; answers where. Raises RefusedError."""
    try:
        piece = _piece(file, request, side, index)
    except (FormatError, MissingValueError) as error:
        whole = file.whole(tensor.place(file, side, index))
        code = Code.DATA_TYPE if isinstance(error, MissingValueError) and whole else Code.DUMP_DATA
        raise RefusedError(code, str(error)) from error
    return output.tensor(piece, request.kind)


def _piece(file: DumpFile, request: Request, side: str, index: int) -> Piece:
    seen = _seen(file, side, index)
    values = _device(file, request, seen, side, index)
    layout, shape = seen.layout, None
    if request.layout is not None:
        values, layout = _moved_or_kept(values, seen, request, f"{file.path}: {side} {index}")
        shape = values.shape
    dtype = _dtype_name(seen, values, request)
    if request.kind == BIN and request.layout is None:
        shape = (values.size,) if request.exact else seen.shape
        values = values if request.exact else _raw(file, seen, side, index)
    as_they_are = (
        request.layout is None
        and not request.exact
        and (request.kind == BIN or seen.kind.numpy not in (None, "bool"))
    )
    return Piece(
        dump=Path(file.path).name,
        op_name=file.header.op_name,
        side=side,
        index=index,
        values=values,
        shape=shape,
        dtype=dtype,
        layout=layout,
        source=file.path if as_they_are else None,
        span=Span(file.spans[tensor.place(file, side, index)].offset, values.nbytes)
        if as_they_are
        else None,
    )


def _seen(file: DumpFile, side: str, index: int) -> TensorView:
    """What the header says of a tensor; of a thread's slice, the slice's own shape."""
    slicing = ffts.slicing(file.header) if file.header.attr else None
    named = names.parse(Path(file.path).name) if slicing is not None else None
    thread = named.thread if named is not None else None
    shape = (
        slicing.shape(side, index, thread) if slicing is not None and thread is not None else None
    )
    return tensor.view(file, side, index, shape=shape)


def _device(file: DumpFile, request: Request, seen: TensorView, side: str, index: int) -> Array:
    values = tensor.device(file, side, index, seen)
    if not request.exact:
        return values
    payload = file.payload(tensor.place(file, side, index))
    return compat.elements(payload, seen.kind, prod(seen.shape), values.reshape(-1)).reshape(
        seen.shape
    )


def _raw(file: DumpFile, seen: TensorView, side: str, index: int) -> Bytes:
    """The bytes of a tensor as they are, without what the file may hold behind them."""
    return file.payload(tensor.place(file, side, index))[: seen.kind.nbytes(prod(seen.shape))]


def _dtype_name(seen: TensorView, values: Array, request: Request) -> str:
    """Element type in the name of a .bin: the true one, unless the values were decoded on their way
    to another layout.
    """
    if seen.kind.numpy is not None or request.layout is None or request.exact:
        return seen.kind.numpy or seen.kind.name
    return name_of(values.dtype)


def _moved_or_kept(
    values: Array, seen: TensorView, request: Request, where: str
) -> tuple[Array, str]:
    """The values in the layout asked for; a vector has no NCHW, and of many files most hold some.
    Raises RefusedError.
    """
    try:
        return _moved(values, seen, request, where)
    except RefusedError as error:
        if not request.lenient or error.code is not Code.FORMAT:
            raise
        return (
            (values, seen.layout)
            if seen.origin is None
            else (tensor.host(values, seen), seen.origin.layout)
        )


def _moved(values: Array, seen: TensorView, request: Request, where: str) -> tuple[Array, str]:
    """The values in the layout asked for, and the layout they then have. Raises RefusedError."""
    target = request.layout or seen.layout
    source = "ND" if seen.layout in _FOUR_AXES and values.ndim != 4 else seen.layout
    if source == target:
        return values, target
    refusal = RefusedError(Code.FORMAT, f"{where}: no conversion from {source} to {target}")
    if source not in layouts.BY_NAME:
        raise refusal
    try:
        if layouts.is_private(target):
            if not plain.is_plain(source):
                raise refusal
            return _packed(values, seen, source, target, request), target
        return _unpacked(values, seen, target, request, where)
    except UsageError as error:
        raise RefusedError(
            Code.FORMAT if "no conversion" in str(error) else Code.SHAPE, f"{where}: {error}"
        ) from error


def _packed(values: Array, seen: TensorView, source: str, target: str, request: Request) -> Array:
    if request.exact and target == "FRACTAL_Z":
        return compat.to_fractal_z(plain.transpose(values, source, "HWCN"), seen.groups)
    c0 = ONE_BYTE_C0 if values.dtype.itemsize == 1 and not request.exact else OTHER_C0
    return layouts.from_host(values, source, target, c0=c0, groups=seen.groups)


def _unpacked(
    values: Array, seen: TensorView, target: str, request: Request, where: str
) -> tuple[Array, str]:
    if request.exact and seen.groups > 1:
        raise RefusedError(
            Code.CONVERT_FUNCTION, f"{where}: the reference tool cannot read grouped weights"
        )
    family = layouts.BY_NAME[seen.layout]
    if target != "ND" and family.host != "ND" and not plain.can_reach(family.host, target):
        raise RefusedError(Code.FORMAT, f"{where}: no conversion from {seen.layout} to {target}")
    origin = _origin(seen, target, request, where)
    moved = layouts.to_host(
        values,
        seen.layout,
        origin,
        groups=seen.groups,
        target=target if plain.is_plain(target) else None,
    )
    if request.exact and family.host == "ND" and moved.ndim > 2:
        return compat.flat_batch(moved), target if moved.ndim == 3 else seen.layout
    return moved, target


def _origin(seen: TensorView, target: str, request: Request, where: str) -> layouts.Origin:
    """What the tensor is on the host: the shape the user gave, in the target's order; else the
    header's; else all there is.
    """
    matrix = layouts.BY_NAME[seen.layout].host == "ND"
    if request.shape:
        resolved = layouts.resolve(
            seen.layout, seen.shape, request.shape, groups=seen.groups, prefer=(target,)
        )
        if resolved is None or (resolved.layout not in (target, "ND") and target != "ND"):
            code = Code.FRACTAL_NZ if matrix else Code.SHAPE
            raise RefusedError(
                code,
                f"{where}: {seen.layout} {list(seen.shape)} cannot be {target} "
                f"{list(request.shape)}",
            )
        return resolved
    if seen.origin is not None and (plain.is_plain(seen.origin.layout) or matrix):
        return seen.origin
    full = layouts.padded(seen.layout, seen.shape)
    if full is None or (matrix and request.exact):
        code = Code.FRACTAL_NZ if matrix else Code.SHAPE
        raise RefusedError(
            code,
            f"{where}: {seen.layout} {list(seen.shape)} does not say its shape on the host; "
            "give it with -s",
        )
    return full


def _rest(file: DumpFile, request: Request, output: Output) -> None:
    """Write buffers, and spaces where bytes are wanted, as they are."""
    stem = Path(file.path).name
    first = len(file.header.input) + len(file.header.output)
    for index, entry in enumerate(file.header.buffer):
        kind = "l1" if entry.buffer_type == 0 else f"type{entry.buffer_type}"
        output.raw(f"{stem}.{kind}buffer.{index}.bin", file.payload(first + index).data)
    if request.kind == BIN:
        for index in range(len(file.header.space)):
            output.raw(
                f"{stem}.space.{index}.bin",
                file.payload(first + len(file.header.buffer) + index).data,
            )
