# SPDX-License-Identifier: Apache-2.0
"""operators.json of a process: what its program told of operators that the shipped catalogue does
not know, by their schemas and declarations, so that a run is judged alike on every machine.

Whoever wrote a run may have written anything there: it is bounded, its traits are checked, and one
that cannot be read counts for nothing, which is said.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from opscope.operators.catalogue import disputed, is_shipped
from opscope.operators.rows import Row, checked_name, checked_row
from opscope.operators.told import Rows
from opscope.run.store.layout import write_json

OPERATORS = "operators.json"
MOST = 4096  # operators of a process
_LARGEST = 1 << 20  # bytes
_NAMED = 8  # operators that one line lists


class OperatorFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file holds: traits (operators.traits) by operator."""

    version: int = 1
    operators: dict[str, dict[str, bool | str]] = {}


class OperatorTable(msgspec.Struct, frozen=True):
    """What a run tells of operators, and a line for each thing about it that is worth knowing."""

    rows: Rows = {}
    remarks: tuple[str, ...] = ()


NOTHING_TOLD = OperatorTable()


def write_operators(directory: Path, rows: Rows) -> None:
    """Replace a process's file in one step; OSError when that fails."""
    write_json(
        directory / OPERATORS,
        OperatorFile(operators={op: dict(row) for op, row in sorted(rows.items())}),
    )


def read_operators(directories: Iterable[Path]) -> OperatorTable:
    """What these processes tell together."""
    tables = [_of_process(directory / OPERATORS) for directory in directories]
    return together(tables)


def together(tables: Iterable[OperatorTable]) -> OperatorTable:
    """Several tables as one. What holds in one holds, since a finding too many is worse than one
    too few; texts that differ are not known.
    """
    merged: dict[str, dict[str, bool | str]] = {}
    remarks: dict[str, None] = {}
    unlike: dict[str, None] = {}
    for table in tables:
        remarks.update(dict.fromkeys(table.remarks))
        for op, row in table.rows.items():
            if op in merged and merged[op] != row:
                unlike[op] = None
            merged[op] = _both(merged.get(op, row), row)
    if unlike:
        said = f"{_listed(unlike)}: of other traits in one recording than in the other"
        remarks[said] = None
    return OperatorTable(merged, tuple(remarks))


def overruled(table: OperatorTable) -> tuple[str, ...]:
    """A line for what a run tells of shipped operators otherwise than the catalogue."""
    contradicted = [op for op, row in table.rows.items() if is_shipped(op) and disputed(op, row)]
    if not contradicted:
        return ()
    said = f"{_listed(contradicted)}: {OPERATORS} tells otherwise than the catalogue, which counts"
    return (f"{said}; --operators overrules it",)


def _both(one: Row, other: Row) -> dict[str, bool | str]:
    merged: dict[str, bool | str] = {}
    for trait in {**one, **other}:
        held = [row[trait] for row in (one, other) if trait in row]
        if all(isinstance(each, bool) for each in held):
            merged[trait] = any(held)
        elif held[0] == held[-1]:
            merged[trait] = held[0]
    return merged


def _listed(ops: Mapping[str, object] | list[str]) -> str:
    more = f" and {len(ops) - _NAMED} more" if len(ops) > _NAMED else ""
    return ", ".join(sorted(ops)[:_NAMED]) + more


def _of_process(path: Path) -> OperatorTable:
    try:
        data = _bytes_of(path)
    except FileNotFoundError:
        return NOTHING_TOLD
    except OSError as error:
        return _ignored(path, f"cannot be read: {error.strerror or error}")
    if len(data) > _LARGEST:
        return _ignored(path, f"larger than {_LARGEST} bytes")
    try:
        told = msgspec.json.decode(data, type=OperatorFile)
        if told.version != 1:
            raise ValueError(f"of version {told.version}, which is not known here")
        if len(told.operators) > MOST:
            raise ValueError(f"more than {MOST} operators")
        rows = {checked_name(op): checked_row(row) for op, row in told.operators.items()}
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return _ignored(path, str(error))
    return OperatorTable(rows)


def _bytes_of(path: Path) -> bytes:
    """At most one byte more than may be; a pipe or a device is not opened for long."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(None, "no plain file")
        return file.read(_LARGEST + 1)


def _ignored(path: Path, why: str) -> OperatorTable:
    return OperatorTable({}, (f"{path}: {why}; what it tells of operators does not count",))
