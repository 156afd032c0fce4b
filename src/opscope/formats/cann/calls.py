# SPDX-License-Identifier: Apache-2.0
"""Calls of a directory of dump files, and the overflow bits that its Opdebug records put on
them.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import FormatError
from opscope.formats import opdebug
from opscope.formats.cann import dumpfile, tensor
from opscope.run.schema import Call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from opscope.formats.cann.tree import Operator, Source

Operators = dict[tuple[int, int], "Operator"]
_BACKWARD = ("Gradients/", "Gradients_")


class Record(msgspec.Struct, frozen=True):
    """One overflow record: its file, and the units that overflowed."""

    source: Source
    units: tuple[opdebug.Unit, ...]

    def told(self) -> dict[str, Any]:
        """The record as plain data."""
        return {"file": self.source.path, "units": [_told(unit) for unit in self.units]}


def list_calls(
    in_order: Sequence[Operator], numbers: dict[int, int]
) -> tuple[list[Call], Operators]:
    """One call for each operator, in the order given, and which operator each (process, index) is;
    numbers: rank -> process.
    """
    calls: list[Call] = []
    operators: Operators = {}
    indices: dict[int, int] = {}
    times: dict[tuple[int, int, str], int] = {}
    for operator in in_order:
        first, name = operator.sources[0], operator.name
        process = numbers[first.rank]
        key = (process, first.step, name)
        count = times[key] = times.get(key, 0) + 1
        index = indices.get(process, 0)
        indices[process] = index + 1
        operators[process, index] = operator
        calls.append(_call(operator, process, index, name if count == 1 else f"{name}#{count}"))
    return calls, operators


def _call(operator: Operator, process: int, index: int, name: str) -> Call:
    first = operator.sources[0]
    whole = len(operator.sources) == 1
    return Call(
        process=process,
        rank=first.rank,
        step=first.step,
        index=index,
        level="operator",
        phase="backward" if name.startswith(_BACKWARD) else "forward",
        op=first.name.op_type,
        name=name,
        task=first.name.task,
        stream=first.name.stream,
        context=first.name.context if whole else None,
        thread=first.name.thread if whole else None,
        device=first.device,
    )


def read_records(root: Path, sources: Sequence[Source], late: list[str]) -> list[Record]:
    """Overflow records, earliest first; one that cannot be read leaves a line in late."""
    ordered = sorted(sources, key=lambda source: source.name.timestamp)
    return [
        Record(source, units) for source in ordered for units in _units(root / source.path, late)
    ]


def _units(path: Path, late: list[str]) -> list[tuple[opdebug.Unit, ...]]:
    units: list[tuple[opdebug.Unit, ...]] = []
    try:
        units.extend(
            tuple(unit for unit in record.units if unit.overflowed and record.valid)
            for record in tensor.overflow_records(dumpfile.read(path))
        )
    except FormatError as error:
        late.append(str(error))
    return units


def _told(unit: opdebug.Unit) -> dict[str, Any]:
    return {
        "unit": unit.name,
        "task": unit.task,
        "stream": unit.stream,
        "context": unit.context,
        "thread": unit.thread,
        "status": [hex(word) for word in unit.status],
        "words": list(unit.words),
    }


def with_status(
    calls: Sequence[Call], operators: Operators, records: Sequence[Record], numbers: dict[int, int]
) -> list[Call]:
    """The calls with the bits of the records that are of them.

    A record whose operator was not dumped becomes a call of its own: an overflow that is known must
    not be silent.
    """
    bits: dict[tuple[int, int], int] = {}
    lost: list[Call] = []
    following = Counter(call.process for call in calls)
    for record in records:
        for unit in record.units:
            culprit = _culprit(operators, record.source, unit) if unit.bits else None
            if culprit is not None:
                bits[culprit] = bits.get(culprit, 0) | unit.bits
            elif unit.bits:
                process = numbers[record.source.rank]
                lost.append(_lost(record.source, unit, process, following[process]))
                following[process] += 1
    marked = [
        msgspec.structs.replace(call, status=bits[key])
        if (key := (call.process, call.index)) in bits
        else call
        for call in calls
    ]
    return marked + lost


def _culprit(operators: Operators, record: Source, unit: opdebug.Unit) -> tuple[int, int] | None:
    """The earliest call in the record's directory whose task, stream, context and thread are the
    unit's.

    Where there is none, the only such call below that directory: a device's records may lie above
    its models' steps.
    """
    below: list[tuple[int, int]] = []
    prefix = f"{record.directory}/" if record.directory else ""
    for key, operator in operators.items():
        for source in operator.sources:
            name = source.name
            if not opdebug.same_task(unit, name.task, name.stream, name.context, name.thread):
                continue
            if source.directory == record.directory:
                return key
            if (
                source.directory.startswith(prefix)
                and source.rank == record.rank
                and below[-1:] != [key]
            ):
                below.append(key)
    return below[0] if len(below) == 1 else None


def _lost(record: Source, unit: opdebug.Unit, process: int, index: int) -> Call:
    return Call(
        process=process,
        rank=record.rank,
        step=record.step,
        index=index,
        level="operator",
        phase="forward",
        op=record.name.op_type,
        name=f"{unit.name} task {unit.task} stream {unit.stream} in {record.path}",
        task=unit.task,
        stream=unit.stream,
        context=unit.context,
        thread=unit.thread,
        device=record.device,
        status=unit.bits,
        args=json.dumps({"overflow": _told(unit)}, ensure_ascii=False),
    )
