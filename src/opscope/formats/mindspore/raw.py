# SPDX-License-Identifier: Apache-2.0
"""CANN's part of a MindSpore dump: kernels dumped as CANN files (file_format bin), and overflow
records, bin or json.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from opscope.arrays import Array
from opscope.errors import FormatError, MissingValueError
from opscope.formats import opdebug
from opscope.formats.bounded_json import load_json
from opscope.formats.cann import dumpfile, tensor
from opscope.formats.cann.dtypes import UNDEFINED
from opscope.run.schema import Tensor, ValueRef


def raw_rows(path: Path, shard: str, key: tuple[int, int], late: list[str]) -> list[Tensor]:
    """Rows of a kernel's CANN dump file; process and index are key. A file that cannot be read
    leaves a line in late.
    """
    try:
        file = dumpfile.read(path)
        sides = [
            (io, index)
            for io in ("input", "output")
            for index in range(len(tensor.tensors(file, io)))
        ]
        return [_row(file, io, index, key, shard) for io, index in sides]
    except FormatError as error:
        late.append(str(error))
        return []


def _row(file: dumpfile.DumpFile, io: str, index: int, key: tuple[int, int], shard: str) -> Tensor:
    seen = tensor.view(file, io, index)
    whole = not seen.partial
    measured = whole and seen.kind is not UNDEFINED and seen.kind.bits > 0
    return Tensor(
        process=key[0],
        index=key[1],
        io=io,
        slot=str(index),
        dtype=seen.kind.name,
        shape=seen.host_shape,
        layout=seen.layout,
        partial=None if whole else True,
        value=ValueRef(shard, f"{io}.{index}") if measured else None,
    )


def raw_value(path: Path, key: str) -> Array:
    """Values of tensor key ("input.0") of a CANN dump file, in host order."""
    io, _, number = key.partition(".")
    file = dumpfile.read(path)
    if (
        not number.isdigit()
        or io not in {"input", "output"}
        or int(number) >= len(tensor.tensors(file, io))
    ):
        raise MissingValueError(f"{path}: has no {key}")
    seen = tensor.view(file, io, int(number))
    return tensor.host(tensor.device(file, io, int(number), seen), seen)


def overflow_units(path: Path) -> list[opdebug.Unit]:
    """Units that report an overflow in one record, json or bin; FormatError when it is neither."""
    if path.suffix.lower() == ".json":
        return _units_of_json(path)
    records = tensor.overflow_records(dumpfile.read(path))
    return [unit for record in records for unit in record.units if unit.bits and record.valid]


def _units_of_json(path: Path) -> list[opdebug.Unit]:
    value = load_json(path)
    if not isinstance(value, dict):
        raise FormatError(path, "an overflow record is not a JSON object", offset=0)
    inner = value.get("acc_list")
    classic = {name: value.get(name) for name in opdebug.CLASSIC_UNITS}
    sections = (
        {str(inner.get("acc_type")): inner.get("data")} if isinstance(inner, dict) else classic
    )
    units = [_unit(name, fields) for name, fields in sections.items() if isinstance(fields, dict)]
    return [unit for unit in units if unit.bits]


def _unit(name: str, fields: dict[str, Any]) -> opdebug.Unit:
    said = fields.get("status")
    words = said if isinstance(said, list) else [said]
    return opdebug.Unit(
        name=name,
        task=_number(fields.get("task_id")),
        stream=_number(fields.get("stream_id")),
        context=_number(fields.get("context_id")),
        thread=_number(fields.get("thread_id")),
        status=tuple(_word(word) for word in words[:8]),
    )


def _number(value: Any) -> int | None:
    known = (
        isinstance(value, int)
        and not isinstance(value, bool)
        and 0 <= value < 1 << 63
        and value != opdebug.UNKNOWN_ID
    )
    return value if known else None


def _word(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"0[xX][0-9a-fA-F]{1,15}|\d{1,18}", value):
        return int(value, 0) if value[:2].lower() == "0x" else int(value)
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
        else 0
    )
