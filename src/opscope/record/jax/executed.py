# SPDX-License-Identifier: Apache-2.0
"""What one call of a JAX function did, as records: the primitives that were executed, in their
order, and the states of arrays that they read and made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from opscope.run.schema import Tensor

FORWARD, BACKWARD, OPTIMIZER, RECOMPUTE = "forward", "backward", "optimizer", "recompute"


class State(msgspec.Struct, frozen=True):
    """A state of an array: its version, and its row, of no call yet; None of what has no numbers
    (a random key).
    """

    version: int
    row: Tensor | None


class Written(msgspec.Struct, frozen=True):
    """A number that the program has written down where others read arrays."""

    number: bool | int | float | str


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a primitive; scope is JAX's stack of names, which tells transformations and
    modules, frames what called it, innermost first.
    """

    primitive: str
    read: tuple[State | Written, ...]
    made: tuple[State, ...]
    params: str
    scope: str
    frames: tuple[str, ...]
    effects: bool = False
    phase: str = FORWARD

    def states(self) -> list[State]:
        """What it read that is no number."""
        return [each for each in self.read if isinstance(each, State)]


def used(calls: Sequence[Executed], results: Iterable[State]) -> list[Executed]:
    """The calls from which results are computed, and those that do something else: a compiler
    executes no others.
    """
    wanted = {state.version for state in results}
    needed: list[Executed] = []
    for call in reversed(calls):
        if call.effects or any(state.version in wanted for state in call.made):
            wanted.update(state.version for state in call.states())
            needed.append(call)
    return needed[::-1]
