# SPDX-License-Identifier: Apache-2.0
"""Read statistic.csv and mapping.csv of a MindSpore dump.

statistic.csv has ten fixed columns (Op Type, Op Name, Task ID, Stream ID, Timestamp, IO, Slot, Data
Size, Data Type, Shape) and any of twelve optional ones, in any order, case and spacing. MindSpore
prints numbers with six digits. "Negative Zero Count" counts the elements below zero, "Positive Zero
Count" those above, infinities included; ours are of finite elements. Its Max and Min are over all
elements and mapped by extremes.py. Of aclnn kernels the name stands before the type, as in the
names of their files.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from opscope.errors import FormatError
from opscope.formats.bounded import read_bounded_text
from opscope.formats.extremes import proven
from opscope.formats.mindspore.attributes import short_dtype
from opscope.formats.mindspore.names import type_first

_SIZE_LIMIT = 1 << 31
_FIELD_LIMIT = 1 << 20
_COLUMNS = {
    "optype": "type",
    "opname": "name",
    "taskid": "task",
    "streamid": "stream",
    "timestamp": "time",
    "io": "io",
    "slot": "slot",
    "datasize": "nbytes",
    "datatype": "dtype",
    "shape": "shape",
    "maxvalue": "max",
    "max": "max",
    "minvalue": "min",
    "min": "min",
    "avgvalue": "mean",
    "avg": "mean",
    "mean": "mean",
    "count": "size",
    "negativezerocount": "neg",
    "positivezerocount": "pos",
    "nancount": "nan",
    "negativeinfcount": "neg_inf",
    "positiveinfcount": "pos_inf",
    "zerocount": "zero",
    "md5": "md5",
    "l2normvalue": "l2norm",
    "l2norm": "l2norm",
}
_EXACT = 1e6  # beyond it six digits are not all
_NEEDED = {"type", "name", "io"}
_COUNTS = ("size", "neg", "pos", "nan", "neg_inf", "pos_inf", "zero")


class StatisticRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line: a tensor and what is known of its values; statistics holds columns of table
    tensors. name keeps its slashes.
    """

    type: str
    name: str
    task: int | None = None
    stream: int | None = None
    time: int = 0
    io: str
    slot: int = 0
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    statistics: dict[str, Any] = {}


def read_statistic(path: str | Path, problems: list[str]) -> list[StatisticRow]:
    """The rows of one file; lines that make no sense go to problems. FormatError when it is not a
    statistic.csv at all.
    """
    return list(parse_statistic(_text(path), str(path), problems))


def _text(path: str | Path) -> str:
    return read_bounded_text(path, limit=_SIZE_LIMIT, what="a csv", encoding="utf-8-sig")


def parse_statistic(text: str, path: str, problems: list[str]) -> Iterator[StatisticRow]:
    """Rows of the text of a statistic.csv."""
    rows = _lines(text, path, problems)
    header = next(rows, None)
    if header is None:
        return
    names = [_COLUMNS.get(re.sub(r"[^a-z0-9]", "", cell.lower())) for cell in header[1]]
    if not set(names) >= _NEEDED:
        raise FormatError(
            path,
            "not a statistic.csv: no columns Op Type, Op Name and IO in "
            f"{','.join(header[1])[:80]!r}",
        )
    for number, cells in rows:
        try:
            fields = {name: cell.strip() for name, cell in zip(names, cells, strict=False) if name}
            if len(cells) < len(names) or not fields.get("io"):
                problems.append(f"{path}:{number}: cut short: {len(cells)} of {len(names)} columns")
                continue
            yield _row(fields)
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")


def _lines(text: str, path: str, problems: list[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    try:
        for cells in reader:
            if any(len(cell) > _FIELD_LIMIT for cell in cells):
                problems.append(f"{path}:{reader.line_num}: a field of more than 1 MiB")
            elif cells and any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        problems.append(f"{path}:{reader.line_num}: {error}")


def _row(fields: dict[str, str]) -> StatisticRow:
    direction = fields["io"].lower()
    if direction not in {"input", "output"}:
        raise ValueError(f"IO is {fields['io'][:40]!r}, neither input nor output")
    shape = _shape(fields.get("shape", ""))
    dtype = short_dtype(fields.get("dtype", ""))
    kind, name = type_first(fields["type"], fields["name"])
    return StatisticRow(
        type=kind,
        name=name,
        task=_whole(fields.get("task")),
        stream=_whole(fields.get("stream")),
        time=_whole(fields.get("time")) or 0,
        io=direction,
        slot=_whole(fields.get("slot")) or 0,
        dtype=dtype,
        shape=shape,
        statistics=_statistics(fields, dtype or "", shape),
    )


def _whole(text: str | None) -> int | None:
    """A whole number; None for an empty or absent cell; ValueError for nan, fractions and numbers
    beyond 64 bits.
    """
    if text is None or text.strip() in {"", "null"}:
        return None
    number = float(text)
    if not math.isfinite(number) or number != int(number):
        raise ValueError(f"{text[:40]!r} is not a whole number")
    whole = int(text) if re.fullmatch(r"[+-]?\d+", text.strip()) else int(number)
    if not -(1 << 63) <= whole < 1 << 63:
        raise ValueError(f"{text[:40]!r} does not fit 64 bits")
    return whole


def _shape(text: str) -> tuple[int, ...] | None:
    inner = text.strip().strip('"').strip("()[]")
    if not text.strip():
        return None
    sizes = tuple(_whole(part) or 0 for part in re.split(r"[,x\s]+", inner) if part)
    return (
        sizes
        if all(size >= 0 for size in sizes) and len(sizes) <= 64 and math.prod(sizes) < 1 << 62
        else None
    )


def _statistics(
    fields: dict[str, str], dtype: str, shape: tuple[int, ...] | None
) -> dict[str, Any]:
    counts = {
        name: value
        for name in _COUNTS
        if name in fields and (value := _whole(fields[name])) is not None
    }
    if "size" not in counts and shape is not None:
        counts["size"] = math.prod(shape)
    columns = proven(dtype, *(fields.get(name) for name in ("max", "min", "mean", "l2norm")))
    ruled_out = {
        "pos_inf": "max" in columns or columns.get("pos_inf") == 0,
        "neg_inf": "min" in columns or columns.get("neg_inf") == 0,
    }
    columns |= _of_finite(counts, possible={name for name, out in ruled_out.items() if not out})
    # theirs run over all elements, ours over the finite ones
    if columns.get("nan") or columns.get("pos_inf") or columns.get("neg_inf"):
        columns = {name: value for name, value in columns.items() if name not in {"mean", "l2norm"}}
    rounded = any(abs(columns.get(name, 0.0)) >= _EXACT for name in ("max", "min"))
    return {
        name: value
        for name, value in columns.items()
        if not (rounded and name in {"max_int", "min_int"})
    }


def _of_finite(counts: dict[str, int], *, possible: set[str]) -> dict[str, int]:
    """The counts with neg and pos of the finite elements; left out where infinities are possible
    that nobody counted.

    Counts that add up to the size as they stand leave infinities out already.
    """
    infinite = {"neg": "neg_inf", "pos": "pos_inf"}
    if (
        all(name in counts for name in _COUNTS)
        and sum(counts[name] for name in _COUNTS[1:]) == counts["size"]
    ):
        return counts
    known = {
        sign: counts.get(inf, 0)
        for sign, inf in infinite.items()
        if inf in counts or inf not in possible
    }
    return {
        name: value - known.get(name, 0)
        for name, value in counts.items()
        if name not in infinite or known.get(name, value + 1) <= value
    }


def read_mapping(path: str | Path, problems: list[str]) -> dict[str, str]:
    """mapping.csv: the short name a file got -> the name it should have had; empty when there is
    none.
    """
    file = Path(path)
    if not file.is_file():
        return {}
    names: dict[str, str] = {}
    try:
        for number, cells in _lines(_text(file), str(file), problems):
            if len(cells) < 2:
                problems.append(f"{file}:{number}: cut short")
                continue
            names[cells[0].strip()] = cells[1].strip()
    except FormatError as error:
        problems.append(str(error))
    return names
