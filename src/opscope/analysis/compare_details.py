# SPDX-License-Identifier: Apache-2.0
"""From places in columns back to records: calls and tensors of the few rows that are told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from opscope.analysis.rows import matching, whole_calls
from opscope.analysis.tables import keys_of, open_tables
from opscope.run.query import record_of
from opscope.run.schema import TABLES, Call, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.analysis.compare_tables import Side


def call_records(side: Side, calls: Iterable[int]) -> dict[int, Call]:
    """Complete records of calls, by their place in Side.calls."""
    places = np.unique(np.fromiter(calls, dtype=np.int64))
    places = places[places >= 0]
    with open_tables(side.run) as tables:
        found = {key: call for key, (call, _) in whole_calls(tables, np.unique(side.calls.key[places]), tensors=False).items()}
    return {place: found[key] for place, key in zip(places.tolist(), side.calls.key[places].tolist(), strict=True) if key in found}


def tensor_records(side: Side, places: NDArray[np.int64]) -> dict[int, Tensor]:
    """Complete records of tensor rows, by their place in Side.tensors."""
    if side.base is not None and side.places is not None:
        found_below = tensor_records(side.base, side.places[places])
        return {place: found_below[below] for place, below in zip(places.tolist(), side.places[places].tolist(), strict=True)}
    tensors = side.tensors
    own = getattr(side.run, "rows", None)
    if own is not None:
        records = own("tensors")
        return {place: records[row] for place, row in zip(places.tolist(), tensors.row[places].tolist(), strict=True)}
    wanted = np.unique(side.calls.key[tensors.call[places]])
    found: dict[tuple[int, bool, int], Tensor] = {}
    with open_tables(side.run) as tables:
        for *values, slot in matching(tables, "tensors", wanted, tuple(TABLES["tensors"]), extra="hash(slot)"):
            record: Tensor = record_of("tensors", dict(zip(TABLES["tensors"], values, strict=True)))
            key = int(keys_of(np.array([record.process]), np.array([record.index]))[0])
            found[key, record.io == "output", slot] = record
    keys = side.calls.key[tensors.call[places]].tolist()
    named = zip(places.tolist(), keys, tensors.output[places].tolist(), tensors.slot[places].tolist(), strict=True)
    return {place: found[key, output, slot] for place, key, output, slot in named}
