# SPDX-License-Identifier: Apache-2.0
"""The registry of rules that explain a call's NaN or infinities, and what a rule may look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from opscope.judge.arguments import Arguments
from opscope.judge.operators import is_overwritten
from opscope.judge.reading import Reading
from opscope.judge.registry import Registry


class Facts(msgspec.Struct, frozen=True):
    """What a rule may look at: operator, scalars, and statistics of the tensors; write-only inputs
    are left out.
    """

    op: str
    arguments: Arguments
    inputs: tuple[Reading, ...]
    outputs: tuple[Reading, ...]

    def input(self, slot: str) -> Reading | None:
        """The input in this slot."""
        return next((reading for reading in self.inputs if reading.slot == slot), None)

    @property
    def nan(self) -> bool:
        return any(out.nan for out in self.outputs)

    @property
    def infinite(self) -> bool:
        return any(out.pos_inf or out.neg_inf for out in self.outputs)


Rule = Callable[[Facts], "tuple[str, ...]"]


# A rule is asked when a call made NaN or infinities from sound inputs, and answers in words what in
# the inputs did it.
RULES: Registry[Rule] = Registry("overflow")


def facts_of(
    op: str, arguments: Arguments, inputs: Sequence[Reading], outputs: Sequence[Reading]
) -> Facts:
    """Facts of a call, without the inputs whose previous content cannot show in the result."""
    return Facts(
        op, arguments, tuple(r for r in inputs if not is_overwritten(op, r.slot)), tuple(outputs)
    )
