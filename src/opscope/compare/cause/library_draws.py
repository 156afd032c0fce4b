# SPDX-License-Identifier: Apache-2.0
"""Random numbers that operators of libraries draw: from which generator nobody knows, so that other
ones are no difference between two runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opscope.compare.cause.causes import COMPUTED, Cause
from opscope.operators.catalogue import of_a_library, traits_of

if TYPE_CHECKING:
    from opscope.arrays import Bools
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side


def library_draws(side: Side) -> Bools:
    """Calls of operators of libraries that are said to draw."""
    return side.which(side.calls.op, lambda op: of_a_library(op) and traits_of(op).random)


def without_library_draws(pairing: Pairing, causes: Sequence[Cause]) -> list[Cause]:
    """The causes but for what operators of libraries drew; what follows from that has none."""
    drawn = library_draws(pairing.target)
    return [each for each in causes if each.kind != COMPUTED or not drawn[each.target]]
