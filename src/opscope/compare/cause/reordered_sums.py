# SPDX-License-Identifier: Apache-2.0
"""Sums and products of several terms that two runs take in another order: their parts differ, the
whole does not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from opscope.operators.catalogue import traits_of

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.pair.pairing import Pairing

MAX_SUMS = 64


class Sums:
    """The target's sums and who reads them; producers are those of the target's rows, rows_of gives
    the rows of a call.
    """

    def __init__(self, pairing: Pairing, producers: Ints, rows_of: Callable[[int], range]) -> None:
        self._pairing, self._producers, self._rows_of = pairing, producers, rows_of

    def reordered(self, call: int) -> set[int]:
        """The chain of sums that begins with a call, where whoever reads its end reads what golden
        reads; else nothing.
        """
        if not self._flags[call]:
            return set()
        rows, agreed = self._pairing.rows, False
        waiting, seen = [call], set[int]()
        while waiting and len(seen) < MAX_SUMS:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            for reader in self._readers.get(at, ()):
                if self._flags[reader]:
                    waiting.append(reader)
                    continue
                read = [
                    row
                    for row in self._rows_of(reader)
                    if not rows.output[row] and self._producers[row] == at
                ]
                if any(rows.error[row] > 64 * rows.roundoff[row] for row in read):
                    return set()
                agreed = agreed or bool(read)
        return seen if agreed else set()

    @cached_property
    def _flags(self) -> Bools:
        side = self._pairing.target
        return side.which(side.calls.op, lambda op: traits_of(op).commutes)

    @cached_property
    def _readers(self) -> dict[int, list[int]]:
        """Leaf calls of the target that read what a sum wrote."""
        flow, side = self._pairing.flows[0], self._pairing.target
        rows = np.flatnonzero((flow.producer >= 0) & side.calls.leaf[side.tensors.call])
        rows = rows[self._flags[flow.producer[rows]]]
        readers: dict[int, list[int]] = defaultdict(list)
        for producer, reader in zip(
            flow.producer[rows].tolist(), side.tensors.call[rows].tolist(), strict=True
        ):
            readers[producer].append(reader)
        return readers
