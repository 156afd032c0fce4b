# SPDX-License-Identifier: Apache-2.0
"""The summary of `opscope-msaccucmp overflow`: the first overflow records of a directory, each with
its operator's tensors.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError
from opscope.formats import opdebug
from opscope.formats.cann import dumpfile, names, tensor
from opscope.formats.cann.codes import Code, RefusedError
from opscope.formats.cann.convert import Request, overflow_json, write_tensor
from opscope.formats.cann.dtypes import format_name

if TYPE_CHECKING:
    from opscope.formats.cann.dumpfile import DumpFile
    from opscope.formats.cann.output import Output

_RULE = "=" * 49


class Summary(msgspec.Struct, frozen=True):
    """The text, how many records there were, and what went wrong on the way: documented code and
    reason.
    """

    text: str
    found: int
    failures: tuple[tuple[Code, str], ...] = ()


def summarise(directory: Path, output: Output, *, top: int, exact: bool = False) -> Summary:
    """Summary of the first `top` overflow records by time; the records' JSON and the tensors are
    written to output.
    """
    records = sorted(_records(directory), key=lambda record: (record[1].timestamp, record[0]))
    parts: list[str] = []
    failures: list[tuple[Code, str]] = []
    for path, name in records[:top]:
        text, failure = _section(len(parts) + 1, path, name, Request(exact=exact), output)
        parts.append(text)
        failures += failure
    return Summary("".join(parts), len(records), tuple(failures))


def _records(directory: Path) -> list[tuple[Path, names.DumpName]]:
    """Overflow records under a directory, those with mapped names included."""
    return [(path, name) for path, name in _named(directory) if name.opdebug]


def _named(directory: Path) -> list[tuple[Path, names.DumpName]]:
    dumps = []
    for here, subdirectories, files in os.walk(directory):
        subdirectories.sort()
        mapped = names.read_mapping(Path(here)) if names.MAPPING in files else {}
        parsed = (
            (Path(here) / file, names.parse(mapped.get(file, file))) for file in sorted(files)
        )
        dumps += [(path, name) for path, name in parsed if name is not None]
    return dumps


Failures = list[tuple[Code, str]]


def _section(
    number: int, path: Path, name: names.DumpName, request: Request, output: Output
) -> tuple[str, Failures]:
    """One numbered section, and what went wrong in it."""
    lines = [f"{_RULE}[{number}]{_RULE}="]
    failures: Failures = []
    try:
        units = [
            unit for record in overflow_json(dumpfile.read(path), output) for unit in record.units
        ]
        culprit = _said(units, path, lines)
        lines.append(f" [timestamp:{name.timestamp}]")
        file = _operator(path.parent, culprit)
        if file is None:
            failures.append(
                (
                    Code.OK,
                    f"{path}: no dump of task {culprit.task}, stream {culprit.stream} beside it",
                )
            )
        else:
            lines.insert(1, f"[{_type(file)}] {file.header.op_name or _name(file)}")
            failures += _tensors(file, request, output, lines)
    except FormatError as error:
        failures.append(
            (
                Code.OVERFLOW_TYPE
                if isinstance(error, opdebug.UnknownUnitError)
                else Code.DUMP_DATA,
                str(error),
            )
        )
    except RefusedError as error:
        failures.append((error.code, str(error)))
    return "\n".join(lines) + "\n", failures


def _said(units: list[opdebug.Unit], path: Path, lines: list[str]) -> opdebug.Unit:
    """Append what the units say; answers the one whose operator is looked for. Raises RefusedError
    when none overflowed.
    """
    for unit in units:
        if unit.overflowed:
            status = unit.status[0] if len(unit.status) == 1 else list(unit.status)
            lines.append(
                f" [{unit.name}][TaskId:{unit.task}][StreamId:{unit.stream}][Status:{status}]"
            )
    said = [unit for unit in units if unit.overflowed]
    if not said:
        code = Code.OVERFLOW_STATUS if len(units) == 1 else Code.OVERFLOW_TYPE
        raise RefusedError(code, f"{path}: its status is 0, so it reports no overflow")
    return said[-1]


def _operator(directory: Path, unit: opdebug.Unit) -> DumpFile | None:
    """The earliest dump in the directory that is of the unit's task."""
    beside = [
        (path, name)
        for path, name in _named(directory)
        if path.parent == directory and not name.opdebug
    ]
    for path, name in sorted(beside, key=lambda dump: dump[1].timestamp):
        if opdebug.same_task(unit, name.task, name.stream, name.context, name.thread):
            return dumpfile.read(path)
    return None


def _name(file: DumpFile) -> str:
    parsed = names.parse(Path(file.path).name)
    return parsed.op_name if parsed is not None else Path(file.path).name


def _type(file: DumpFile) -> str:
    parsed = names.parse(Path(file.path).name)
    return parsed.op_type if parsed is not None else ""


def _tensors(file: DumpFile, request: Request, output: Output, lines: list[str]) -> Failures:
    failures: Failures = []
    for side in ("input", "output"):
        for index, entry in enumerate(tensor.tensors(file, side)):
            path, failure = _written(file, request, output, (side, index))
            failures += failure
            if path is not None:
                values = np.load(path, mmap_mode="r", allow_pickle=False)
                lines += [
                    f" {path.name}",
                    f" -[Format: {format_name(entry.format)}] {_described(values)}",
                ]
    return failures


def _written(
    file: DumpFile, request: Request, output: Output, which: tuple[str, int]
) -> tuple[Path | None, Failures]:
    try:
        return write_tensor(file, request, output, *which), []
    except RefusedError as error:
        return None, [(error.code, str(error))]


def _described(values: Array) -> str:
    """Shape, type and extremes, NaN where there is one; the mean is taken in double precision."""
    if values.size == 0:
        return f"[Shape: {values.shape}] [Dtype: {values.dtype}] [Max: -] [Min: -] [Mean: -]"
    wide = np.complex128 if values.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        mean = values.mean(dtype=wide)
    return (
        f"[Shape: {values.shape}] [Dtype: {values.dtype}] [Max: {np.max(values)}] [Min: "
        f"{np.min(values)}] [Mean: {mean}]"
    )
