# SPDX-License-Identifier: Apache-2.0
"""Runs whose batches have another size, or sequences of another length: one difference of what goes
in, which explains all other shapes.

What shapes leave comparable (parameters, arguments, what is computed of parameters alone) is still
compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.causes import ARGUMENT, ARRIVED, Cause
from opscope.compare.pair.tensors import SHAPE
from opscope.compare.side.records import tensor_records
from opscope.operators.catalogue import traits_of
from opscope.run.hashes import hash_of

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

FIRST = 2  # of these dimensions one is that of the batch, the other that of a sequence
SHARE = 0.3  # of the forward pass's results that have another shape then


def without_batch(pairing: Pairing, causes: Sequence[Cause]) -> list[Cause]:
    """The causes; where the batch has another size that first, and of the others those that it does
    not explain.
    """
    row, words = _resized(pairing)
    if not words:
        return list(causes)
    call = int(pairing.rows.target_call[row])
    rest = [cause for cause in causes if not _explained(pairing, cause)]
    return [Cause(ARRIVED, call, int(pairing.match.target[call]), row, words=(words,)), *rest]


def _explained(pairing: Pairing, cause: Cause) -> bool:
    """Whether a batch of another size may be all that is behind a cause."""
    if cause.kind == ARRIVED:
        return bool(pairing.rows.status[cause.row] == SHAPE)
    op = pairing.target.operator(cause.target)
    return cause.kind != ARGUMENT or traits_of(op).idle or traits_of(op).random


def _resized(pairing: Pairing) -> tuple[int, str]:
    """The first row that reads a batch of another size, and how large it is on either side, in
    words; "" where the batch is none.
    """
    if not (pairing.rows.status == SHAPE).any():
        return -1, ""
    forward = _forward(pairing.target)
    fed = _fed(pairing, forward)
    if not len(fed) or not _everywhere(pairing, forward):
        return -1, ""
    row = int(fed[0])
    tensor_rows = int(pairing.rows.target[row]), int(pairing.rows.golden[row])
    sides = (pairing.target, pairing.golden)
    records = [
        tensor_records(side, np.array([tensor_row]))[tensor_row]
        for side, tensor_row in zip(sides, tensor_rows, strict=True)
    ]
    mine, theirs = (list(record.shape or ()) for record in records)
    other = [at for at, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b]
    if len(mine) != len(theirs) or len(other) != 1 or other[0] >= FIRST:
        return -1, ""
    return row, f"the batch has another size: {mine}, golden has {theirs}"


def _fed(pairing: Pairing, forward: Bools) -> Ints:
    """Rows of these calls that read a tensor of another shape which no recorded call produced; none
    where one is a parameter.
    """
    rows, tensors = pairing.rows, pairing.target.tensors
    chosen: Ints = np.flatnonzero((rows.status == SHAPE) & ~rows.output)
    made = (pairing.flows[0].producer[rows.target[chosen]] >= 0) | (
        pairing.flows[1].producer[rows.golden[chosen]] >= 0
    )
    chosen = chosen[~made & forward[rows.target_call[chosen]]]
    side, target_rows = pairing.target, rows.target[chosen]
    weighed = side.which(
        side.calls.op[rows.target_call[chosen]], lambda op: traits_of(op).weighed
    ) & (tensors.slot[target_rows] != hash_of("0"))
    weighed &= side.which(
        tensors.dtype[target_rows], lambda dtype: "int" not in dtype
    )  # words are looked up by whole numbers
    return chosen[:0] if (tensors.parameter[target_rows] | weighed).any() else chosen


def _everywhere(pairing: Pairing, forward: Bools) -> bool:
    """Whether most results of these calls have another shape."""
    rows = pairing.rows
    written = np.flatnonzero(rows.output & (rows.target >= 0) & (rows.golden >= 0))
    written = written[forward[rows.target_call[written]]]
    return len(written) > 0 and float(np.mean(rows.status[written] == SHAPE)) >= SHARE


def _forward(side: Side) -> Bools:
    """Calls of the first step before its backward pass."""
    calls = side.calls
    backward = np.flatnonzero(side.in_phase("backward"))
    forward: Bools = calls.leaf & (calls.step == (int(calls.step[0]) if len(calls) else 0))
    forward[int(backward[0]) if len(backward) else len(forward) :] = False
    return forward
