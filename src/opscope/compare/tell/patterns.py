# SPDX-License-Identifier: Apache-2.0
"""What the difference of one pair of stored tensors looks like, in words: judge.mismatch asked with
the values of both runs.
"""

from __future__ import annotations

import numpy as np

from opscope.arrays import Array
from opscope.compare.pair.pairing import Pairing
from opscope.compare.side.records import tensor_records, value_of
from opscope.errors import FormatError, MissingValueError, UsageError
from opscope.judge.mismatch import explain

MAX_ELEMENTS = 1 << 24


def pattern_of(pairing: Pairing, row: int) -> str | None:
    """The sentence that explains a row whose values both sides kept; None where none does, or the
    values are not there.
    """
    rows = pairing.rows
    tensor_rows = int(rows.target[row]), int(rows.golden[row])
    if min(tensor_rows) < 0 or not (
        pairing.target.tensors.kept[tensor_rows[0]] and pairing.golden.tensors.kept[tensor_rows[1]]
    ):
        return None
    if pairing.target.tensors.size[tensor_rows[0]] > MAX_ELEMENTS:
        return None
    try:
        pattern = explain(
            value_of(pairing.target, tensor_rows[0]),
            value_of(pairing.golden, tensor_rows[1]),
            others=_others(pairing, tensor_rows[1]),
        )
    except (FormatError, MissingValueError, UsageError, MemoryError):
        return None
    return None if pattern is None else pattern.words


def _others(pairing: Pairing, output: int) -> dict[str, Array]:
    """Stored inputs of golden's call that may explain the difference by being left out or added:
    those no larger than its output.
    """
    side, tensors = pairing.golden, pairing.golden.tensors
    own = np.flatnonzero(
        (tensors.call == tensors.call[output])
        & ~tensors.output
        & tensors.kept
        & (tensors.size <= tensors.size[output])
    )
    records = tensor_records(side, own) if len(own) else {}
    return {
        record.tensor_name or f"input {record.slot}": side.run.value(record)
        for record in records.values()
    }
