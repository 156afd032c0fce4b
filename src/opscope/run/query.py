# SPDX-License-Identifier: Apache-2.0
"""Asking a run: its calls in order, the rows of some calls, single columns as arrays.

Everything is read lazily and works on runs larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.run.access import access_of
from opscope.run.arrow import (
    ROWS_PER_BATCH,
    Batch,
    Column,
    RecordColumns,
    StoredRecords,
    decode_stream,
    owned,
    stream_batches,
    stream_columns,
    struct_columns,
)
from opscope.run.keys import among, indices_of, keys_at, keys_of, merged, processes_of
from opscope.run.schema import RECORDS, TABLES, Call, Tensor
from opscope.run.selection import Selection

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Ints
    from opscope.run.protocol import Run


def calls(run: Run, selection: Selection | None = None) -> Iterator[Call]:
    """The calls that are meant, by rank, process, step and index."""
    wanted = Selection() if selection is None else selection
    access = access_of(run)
    if access.calls is not None:
        yield from access.calls(wanted)
        return
    yield from sorted(
        (call for call in records(run, "calls") if wanted.wants_call(call)),
        key=lambda call: (call.rank, call.process, call.step, call.index),
    )


def tensors_of(run: Run, call: Call, *, io: str = "both") -> tuple[Tensor, ...]:
    """Tensor rows of one call, in the order they were recorded; io is "input", "output" or
    "both".
    """
    return tuple(row for row in tensors_at(run, call.process, call.index) if io in ("both", row.io))


def tensors_at(run: Run, process: int, index: int) -> Sequence[Tensor]:
    """Tensor rows of the call of this number, in the order they were recorded."""
    tensors_of_call = access_of(run).tensors_of
    if tensors_of_call is not None:
        return tensors_of_call(process, index)
    return list(records_of(run, "tensors", keys_at([(process, index)])))


def columns(
    run: Run, table: str, names: Sequence[str], near: Ints | None = None
) -> Iterator[Mapping[str, Array]]:
    """Some columns of a table, a batch at a time, without making records.

    Numbers and bool come as arrays of the column's type, masked (np.ma) where rows are null; text,
    lists and structs as object arrays with None where null. near: sorted keys of calls; batches
    that hold none of them may be left out.
    """
    own = access_of(run).columns
    if own is not None:
        yield from own(table, names, near)
        return
    in_memory = access_of(run).rows
    if in_memory is not None:
        rows = _near_of(in_memory(table), near)
        for start in range(0, len(rows), ROWS_PER_BATCH):
            yield RecordColumns(table, names, rows[start : start + ROWS_PER_BATCH])
        return
    yield from stream_columns(table, run.table(table), names)


def _near_of(rows: Sequence[Any], near: Ints | None) -> Sequence[Any]:
    if near is None:
        return rows
    wanted = frozenset(zip(processes_of(near).tolist(), indices_of(near).tolist(), strict=True))
    return [row for row in rows if (row.process, row.index) in wanted]


def chosen_columns(
    run: Run, table: str, names: Sequence[str], calls: Ints | None = None
) -> Iterator[list[Array]]:
    """The same columns in their order, of the rows of these calls alone (sorted keys, each once),
    of all rows without them.
    """
    for batch in _batches_of(run, table, names, calls):
        yield [batch[name] for name in names]


def _batches_of(
    run: Run, table: str, names: Sequence[str], calls: Ints | None
) -> Iterator[Mapping[str, Array]]:
    if calls is None:
        yield from columns(run, table, names)
        return
    for batch in columns(run, table, ("process", "index", *names), calls) if len(calls) else ():
        yield from _at(batch, among(calls, keys_of(batch["process"], batch["index"])))


def _at(batch: Mapping[str, Array], chosen: Bools) -> Iterator[Mapping[str, Array]]:
    """The chosen rows of a batch, where there are any; texts are decoded of these alone, where they
    lie in a file.
    """
    rows = np.flatnonzero(chosen)
    if len(rows) == len(chosen):
        yield batch
    elif isinstance(batch, Batch):
        yield from [batch.at(rows)] if len(rows) else []
    elif len(rows):
        yield {name: column[rows] for name, column in batch.items()}


def rows_of(
    run: Run, table: str, names: Sequence[str], calls: Ints | None = None
) -> Iterator[tuple[Any, ...]]:
    """The same as tuples of Python's values."""
    for batch in chosen_columns(run, table, names, calls):
        yield from zip(*(column.tolist() for column in batch), strict=True)


def rows_where(
    run: Run,
    table: str,
    names: Sequence[str],
    chosen: Callable[[Mapping[str, Array]], Bools],
    calls: Ints | None = None,
) -> Iterator[tuple[Any, ...]]:
    """Those of these rows of which something holds that these columns tell; chosen is asked of a
    batch of them, and what it does not look at is read of the chosen rows alone.
    """
    for batch in _batches_of(run, table, names, calls):
        for part in _at(batch, chosen(batch)):
            yield from zip(*(part[name].tolist() for name in names), strict=True)


def records_of(run: Run, table: str, calls: Ints) -> Iterator[Any]:
    """Records of the rows of these calls, in the order of the table."""
    names, record = tuple(TABLES[table]), RECORDS[table]
    for row in rows_of(run, table, names, calls):
        yield record(**dict(zip(names, row, strict=True)))


def call_at(run: Run, process: int, index: int) -> Call | None:
    """The call of this number, None where there is none."""
    in_memory = access_of(run).rows
    if in_memory is None:
        return next(records_of(run, "calls", keys_at([(process, index)])), None)
    rows: Sequence[Call] = in_memory("calls")
    return next((row for row in rows if row.index == index and row.process == process), None)


def keys_where(
    run: Run,
    table: str,
    names: Sequence[str],
    chosen: Callable[[Mapping[str, Array]], Bools],
    calls: Ints | None = None,
) -> Ints:
    """Keys of the calls, sorted, each once, of whose rows something holds that these columns tell;
    chosen is asked of a batch of them. calls: those that are looked at, sorted, each once.
    """
    parts = []
    for batch in _batches_of(run, table, ("process", "index", *names), calls):
        rows = np.flatnonzero(chosen(batch))
        if len(rows):
            parts.append(np.unique(keys_of(batch["process"][rows], batch["index"][rows])))
    return merged(parts)


def which(texts: Array, holds: Callable[[Any], bool]) -> Bools:
    """Of which of these texts, None where there is none, something holds; asked once for each
    text.
    """
    known: dict[Any, bool] = {}
    for text in texts:
        if text not in known:
            known[text] = holds(text)
    return np.fromiter(map(known.__getitem__, texts), bool, len(texts))


def filled(column: Array) -> Array:
    """The numbers of a column, 0 where null."""
    if not isinstance(column, np.ma.MaskedArray):
        return column
    return np.where(np.ma.getmaskarray(column), column.dtype.type(0), np.ma.getdata(column))


def arrow_columns(run: Run, table: str) -> Iterator[Mapping[str, Column]]:
    """All columns of a table as they lie in Arrow, a batch at a time: no Python object is made for
    a row.
    """
    own, in_memory = access_of(run).arrow_columns, access_of(run).rows
    if own is not None:
        yield from own(table)
        return
    if in_memory is not None:
        rows = in_memory(table)
        for start in range(0, len(rows), ROWS_PER_BATCH):
            yield StoredRecords(table, rows[start : start + ROWS_PER_BATCH])
        return
    for batch in stream_batches(table, run.table(table)):
        yield dict(
            zip(TABLES[table], map(owned, struct_columns(TABLES[table], batch)), strict=True)
        )


def release(run: Run, table: str) -> None:
    """Gives back memory in which a table lies mapped from its files, where it does: its columns are
    read again when looked at again.
    """
    own = access_of(run).release
    if own is not None:
        own(table)


def records_at(run: Run, table: str, rows: Sequence[int]) -> list[Any]:
    """Records of a table by their number among the rows of arrow_columns, in the order asked
    for.
    """
    own = access_of(run).records_at
    if own is not None:
        return own(table, rows)
    every = list(records(run, table))
    return [every[row] for row in rows]


def records(run: Run, table: str) -> Iterator[Any]:
    """Every row of a table as its record, in the order of the table."""
    in_memory = access_of(run).rows
    yield from decode_stream(table, run.table(table)) if in_memory is None else in_memory(table)
