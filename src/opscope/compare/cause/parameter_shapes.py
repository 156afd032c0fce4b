# SPDX-License-Identifier: Apache-2.0
"""Parameters that have another shape than on the golden side: a layer that is wider, or parted into
groups.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.pair.tensors import SHAPE
from opscope.compare.side.call_rows import rows_of
from opscope.operators.catalogue import traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.compare.pair.pairing import Pairing


class Shapes:
    """Who reads such parameters; each is told at its first reader."""

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing
        self._told_names: set[int] = set()

    @cached_property
    def readers(self) -> dict[int, int]:
        """Calls that compute with a parameter of another shape, and its row; not those that only
        fill it.
        """
        rows, side = self._pairing.rows, self._pairing.target
        chosen = np.flatnonzero((rows.status == SHAPE) & ~rows.output)
        same = (
            side.tensors.named[rows.target[chosen]]
            == self._pairing.golden.tensors.named[rows.golden[chosen]]
        )
        chosen = chosen[side.tensors.parameter[rows.target[chosen]] & same]
        words = side.texts(side.calls.op[rows.target_call[chosen]])
        readers: dict[int, int] = {}
        for row, call, op in zip(
            chosen.tolist(), rows.target_call[chosen].tolist(), words, strict=True
        ):
            known = traits_of(op)
            if not (known.idle or known.overwrites or known.random):
                readers.setdefault(call, row)
        return readers

    def told_at(self, call: int) -> int:
        """The row of a parameter that is to be told at this call, NONE where there is none, or an
        earlier call told it.
        """
        row = self.readers.get(call, NONE)
        if row < 0:
            return NONE
        name = int(self._pairing.target.tensors.named[self._pairing.rows.target[row]])
        if name in self._told_names:
            return NONE
        self._told_names.add(name)
        return row

    def recorded_otherwise(self, call: int, forward: int) -> bool:
        """Whether all that differs of a gradient is its shape, though what its forward call read
        and wrote has the same on both sides.

        A tool that hooks the nodes of autograd takes the gradient of another node then, where
        kernels are composed otherwise.
        """
        shaped, otherwise = self._shaped
        return forward >= 0 and call in shaped and call not in otherwise and forward not in shaped

    @cached_property
    def _shaped(self) -> tuple[set[int], set[int]]:
        """Calls with a tensor of another shape, and those that write one that differs otherwise."""
        rows = self._pairing.rows
        shape = rows.status == SHAPE
        return set(rows.target_call[shape].tolist()), set(
            rows.target_call[rows.output & ~shape & (rows.error > 0)].tolist()
        )

    def draws(self, call: int) -> bool:
        """Whether a draw fills a parameter in a run some of whose parameters have another shape,
        which sets the bounds of the draw.
        """
        side = self._pairing.target
        return bool(self.readers) and bool(side.tensors.parameter[rows_of(side, call)].any())
