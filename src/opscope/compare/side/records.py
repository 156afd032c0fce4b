# SPDX-License-Identifier: Apache-2.0
"""From places in columns back to records: calls and tensors of the few rows that are told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from opscope.run.keys import NONE
from opscope.run.query import records_at

if TYPE_CHECKING:
    from opscope.arrays import Array, Ints
    from opscope.compare.side.columns import Side
    from opscope.run.finding import Finding
    from opscope.run.schema import Call, Tensor


def call_records(side: Side, calls: Iterable[int]) -> dict[int, Call]:
    """Complete records of calls, by their place in Side.calls."""
    wanted = np.unique(np.fromiter(calls, dtype=np.int64))
    wanted = wanted[wanted >= 0]
    return dict(
        zip(
            wanted.tolist(),
            records_at(side.run, "calls", side.calls.row[wanted].tolist()),
            strict=True,
        )
    )


def call_of(side: Side, finding: Finding) -> int:
    """The place in Side.calls of the call that a finding names; NONE where the side has none."""
    calls = side.calls
    matching = np.flatnonzero(
        (calls.rank == finding.rank)
        & (calls.step == finding.step)
        & (calls.index == (NONE if finding.index is None else finding.index))
    )
    return int(matching[0]) if len(matching) else NONE


def tensor_records(side: Side, places: Ints) -> dict[int, Tensor]:
    """Complete records of tensor rows, by their place in Side.tensors."""
    if side.base is not None and side.places is not None:
        found_below = tensor_records(side.base, side.places[places])
        return {
            row: found_below[below]
            for row, below in zip(places.tolist(), side.places[places].tolist(), strict=True)
        }
    return dict(
        zip(
            places.tolist(),
            records_at(side.run, "tensors", side.tensors.row[places].tolist()),
            strict=True,
        )
    )


def value_of(side: Side, row: int) -> Array:
    """The elements of one of a side's tensors; MissingValueError where they were not kept."""
    return side.run.value(tensor_records(side, np.array([row], dtype=np.int64))[row])
