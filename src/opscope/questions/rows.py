# SPDX-License-Identifier: Apache-2.0
"""The part of a run that can matter for soundness: calls that touch anything not finite, and their
tensors.

screen() reads a few numeric columns of all rows; a clean run needs no more. load() then makes
records of the calls the screen chose, so that what is held in Python is what is wrong with a run,
not its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.judge.integers import INTERVALS
from opscope.judge.limits import NARROW, largest_finite
from opscope.kernels.calls import is_integer
from opscope.operators.catalogue import traits_of
from opscope.questions.wrapped_readers import wrapped_readers
from opscope.run.keys import key, keys_of, merged
from opscope.run.query import columns, filled, keys_where, records_of, rows_of, which
from opscope.run.schema import Call, Tensor

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Ints
    from opscope.run.protocol import Run

MAX_CALLS = 1_000_000  # suspicious calls that are held at once
MAX_UNREAD_CALLS = 200_000


class Row(msgspec.Struct, gc=False):
    """One tensor row, the columns that soundness needs; a Reading."""

    process: int
    index: int
    io: str
    slot: str
    dtype: str
    version: int | None = None
    storage: int | None = None
    offset: int | None = None
    role: str | None = None
    tensor_name: str | None = None
    size: int | None = None
    nan: int | None = None
    pos_inf: int | None = None
    neg_inf: int | None = None
    zero: int | None = None
    neg: int | None = None
    min: float | None = None
    max: float | None = None
    min_int: int | None = None
    max_int: int | None = None
    digest: int | None = None
    l2norm: float | None = None
    shape: Sequence[int] | None = None
    stride: Sequence[int] | None = None


class Node(msgspec.Struct, gc=False):
    """One call of the chosen part, with its tensor rows."""

    process: int
    rank: int
    step: int
    index: int
    level: str
    parent: int | None
    phase: str
    op: str
    module: str | None
    name: str
    forward_index: int | None
    source: str | None
    args: str | None
    status: int | None
    error: str | None
    again: int | None = None
    inputs: list[Row] = []
    outputs: list[Row] = []


_ROW_COLUMNS = Row.__struct_fields__
_CALL_COLUMNS = tuple(name for name in Node.__struct_fields__ if name not in {"inputs", "outputs"})


class Screen(msgspec.Struct, frozen=True):
    """Keys of the calls worth loading, sorted and unique, and counts for the summary.

    bad: NaN, infinities, or masks at the lowest finite value; odd: a status bit, a value at a
    limit, integers that may have left their type; unread: tensors without statistics; near: rows
    with values near the limit of their type.
    """

    tensors: int
    bad: Ints
    odd: Ints
    unread: Ints
    near: int

    @property
    def clean(self) -> bool:
        """Whether nothing in the tables can be a finding of soundness."""
        return not self.bad.size and not self.odd.size


_LOWEST = tuple(
    -largest
    for name in ("float16", "bfloat16", "float32", "float64")
    if (largest := largest_finite(name)) is not None
)
_CLIPPED = tuple(
    sorted({largest for name in NARROW if (largest := largest_finite(name)) is not None})
)


def screen(run: Run, status: Sequence[Ints]) -> Screen:
    """One pass over the statistics of every tensor row; status are keys of the calls that have a
    status bit.
    """
    bad, odd, unread = [], [], []
    tensors = near = 0
    for batch in columns(
        run,
        "tensors",
        ("process", "index", "nan", "pos_inf", "neg_inf", "min", "max", "near_limit"),
    ):
        wrong, clipped, blank = _suspects(batch)
        tensors += len(wrong)
        near += _near(batch)
        if not (wrong.any() or clipped.any() or blank.any()):
            continue
        calls = keys_of(batch["process"], batch["index"])
        bad.append(np.unique(calls[wrong]))
        odd.append(np.unique(calls[clipped]))
        unread.append(np.unique(calls[blank]))
    odd.extend(status)
    odd += [integer_keys(run), wrapped_readers(run, status)]
    return Screen(tensors, merged(bad), merged(odd), merged(unread), near)


def _near(batch: Mapping[str, Array]) -> int:
    """Rows of narrow types with values near their limit; those of wide types lie above every narrow
    limit.
    """
    near = filled(batch["near_limit"]) != 0
    if not near.any():
        return 0
    largest = np.maximum(np.abs(filled(batch["min"])), np.abs(filled(batch["max"])))
    return int(np.count_nonzero(near & (largest < _CLIPPED[-1])))


def _suspects(
    batch: Mapping[str, Array],
) -> tuple[Bools, Bools, Bools]:
    """Rows that are not finite or hold a finite mask, rows at the limit of a narrow type, rows
    without statistics.
    """
    wrong = (filled(batch["nan"]) + filled(batch["pos_inf"]) + filled(batch["neg_inf"])) != 0
    low, high = filled(batch["min"]), filled(batch["max"])
    clipped = np.zeros(len(low), dtype=bool)
    if len(low) and max(high.max(), -low.min()) >= _CLIPPED[0]:
        largest = np.maximum(np.abs(low), np.abs(high))
        for lowest in _LOWEST:
            wrong |= low == lowest
        for limit in _CLIPPED:
            clipped |= largest == limit
    return wrong, clipped, np.ma.getmaskarray(batch["nan"])


def load(run: Run, wanted: Ints) -> dict[int, Node]:
    """Records of these calls with all their tensor rows, by key."""
    nodes: dict[int, Node] = {}
    for values in rows_of(run, "calls", _CALL_COLUMNS, wanted):
        node = Node(*values)
        nodes[key(node.process, node.index)] = node
    for values in rows_of(run, "tensors", _ROW_COLUMNS, wanted):
        row = Row(*values)
        owner = nodes.get(key(row.process, row.index))
        if owner is not None and not is_index(row):
            (owner.inputs if row.io == "input" else owner.outputs).append(row)
    return nodes


def is_index(row: Row) -> bool:
    """Whether it is a part of a sparse, nested or quantised tensor that says where its values are
    (`0.indices`): no operand.
    """
    named = row.slot.split(".")[2 if row.slot.startswith("kwargs.") else 1 :]
    return bool(named) and named[-1].isidentifier() and is_integer(row.dtype)


def rows_of_calls(
    run: Run, wanted: Ints, column: str, table: str = "calls"
) -> Iterator[tuple[int, Any]]:
    """One column of a table for these calls, each with the number of its call."""
    for process, index, value in rows_of(run, table, ("process", "index", column), wanted):
        yield key(process, index), value


def whole_calls(
    run: Run, wanted: Ints, *, tensors: bool = True
) -> dict[int, tuple[Call, list[Tensor]]]:
    """Complete records of a few calls and, unless they are not wanted, their tensors, by key."""
    calls: dict[int, tuple[Call, list[Tensor]]] = {
        key(call.process, call.index): (call, []) for call in records_of(run, "calls", wanted)
    }
    for tensor in records_of(run, "tensors", wanted) if tensors else ():
        owner = calls.get(key(tensor.process, tensor.index))
        if owner is not None:
            owner[1].append(tensor)
    return calls


# Calls whose integer arithmetic nobody judged while it ran, and whose values are large enough to
# leave their type.
#
# opscope's own recorder judges integers by their values while they are there, and writes what it
# found as the call's status.

_BYTE = 12


def integer_keys(run: Run) -> Ints:
    """Keys of these calls, sorted."""
    if run.info.coverage.integers:
        return merged([])

    def unjudged(batch: Mapping[str, Array]) -> Bools:
        return np.ma.getmaskarray(batch["status"]) & which(batch["op"], _judged)

    return keys_where(run, "calls", ("op", "status"), unjudged, _candidates(run))


def _judged(op: str) -> bool:
    return INTERVALS.find(op) is not None or traits_of(op).cast


def _candidates(run: Run) -> Ints:
    def large(batch: Mapping[str, Array]) -> Bools:
        low, high = np.ma.getdata(batch["min_int"]), np.ma.getdata(batch["max_int"])
        return ~np.ma.getmaskarray(batch["min_int"]) & ((high >= _BYTE) | (low <= -_BYTE))

    return keys_where(run, "tensors", ("min_int", "max_int"), large)
