# SPDX-License-Identifier: Apache-2.0
"""Rows of a run beside those of the call itself: the operators inside it, and where the values of its inputs were kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from opscope.run.query import record_of, sql
from opscope.run.schema import ValueRef

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.run.schema import Call, Tensor


class Sample(msgspec.Struct, frozen=True):
    """What of a judgement's sample is needed: where inputs were kept, by slot."""

    inputs: dict[str, tuple[str, str]] = {}


def operators_inside(run: Run, call: Call, *, limit: int = 5) -> list[str]:
    """Names of the first operator calls directly inside an api or module call."""
    query = 'SELECT name FROM calls WHERE process = ? AND parent = ? AND level = ? ORDER BY "index" LIMIT ?'
    return [row["name"] for row in sql(run, query, [call.process, call.index, "operator", limit])]


def same_elements(row: Tensor) -> tuple[object, ...]:
    """Equal for two rows of one process and one tensor version that run through the same elements in the same order."""
    return (row.storage, row.offset, row.dtype, row.shape, row.stride)


def borrow_values(run: Run, rows: Sequence[Tensor]) -> list[Tensor]:
    """The rows, those without values pointing to where another row of the same version and the same view kept them."""
    rows = _judged_values(run, rows)
    lacking = [row for row in rows if row.value is None and row.version is not None]
    if not lacking:
        return list(rows)
    query = "SELECT * FROM tensors WHERE process = ? AND value.shard IS NOT NULL AND version IN (SELECT unnest(?))"
    kept: dict[object, ValueRef] = {}
    for found in sql(run, query, [lacking[0].process, sorted({row.version for row in lacking if row.version is not None})]):
        other: Tensor = record_of("tensors", found)
        if other.value is not None:
            kept.setdefault((other.version, *same_elements(other)), other.value)
    return [row if row not in lacking else _with_value(row, kept) for row in rows]


def _judged_values(run: Run, rows: Sequence[Tensor]) -> list[Tensor]:
    """The rows, those without values pointing to what run --check kept of a call that it found wrong."""
    if all(row.value is not None for row in rows) or run.info.format != "opscope":
        return list(rows)
    query = 'SELECT sample FROM judgements WHERE process = ? AND "index" = ? AND sample IS NOT NULL'
    kept: dict[str, ValueRef] = {}
    for found in sql(run, query, [rows[0].process, rows[0].index]):
        try:
            inputs = msgspec.json.decode(found["sample"], type=Sample).inputs
        except msgspec.MsgspecError:
            continue
        kept.update({slot: ValueRef(shard, key) for slot, (shard, key) in inputs.items()})
    return [row if row.value is not None or row.slot not in kept else msgspec.structs.replace(row, value=kept[row.slot]) for row in rows]


def _with_value(row: Tensor, kept: Mapping[object, ValueRef]) -> Tensor:
    return msgspec.structs.replace(row, value=kept.get((row.version, *same_elements(row))))
