# SPDX-License-Identifier: Apache-2.0
"""The tensor rows of one call of a side: what it reads, and what it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.operators.catalogue import traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opscope.arrays import Bools, Ints
    from opscope.compare.side.columns import Side


MOST_ABOVE = 200  # calls that are looked at


def rows_of(side: Side, call: int) -> range:
    """All rows of a call."""
    begins = side.tensors.begins
    known = 0 <= call < len(begins) - 1
    return range(int(begins[call]), int(begins[call + 1])) if known else range(0)


def inputs_of(side: Side, call: int) -> list[int]:
    """The rows of what a call reads."""
    return [row for row in rows_of(side, call) if not side.tensors.output[row]]


def outputs_of(side: Side, call: int) -> list[int]:
    """The rows of what a call writes."""
    return [row for row in rows_of(side, call) if side.tensors.output[row]]


def given_to(side: Side, call: int) -> list[int]:
    """The rows of what a call reads that is no parameter."""
    return [row for row in inputs_of(side, call) if not side.tensors.parameter[row]]


def parameters_of(side: Side, call: int) -> list[int]:
    """The rows of parameters that a call reads."""
    return [row for row in inputs_of(side, call) if side.tensors.parameter[row]]


def weighs(side: Side, call: int) -> bool:
    """Whether a call is a product of what it is given with parameters."""
    return traits_of(side.operator(call)).contraction and bool(parameters_of(side, call))


def comes_of_products(side: Side, producer: Ints, call: int) -> bool:
    """Whether something that a call reads was computed by a product with parameters. producer: the
    call that made what each row holds.
    """
    waiting, seen = [call], set[int]()
    while waiting and len(seen) < MOST_ABOVE:
        rows = inputs_of(side, waiting.pop())
        above = {int(made) for made in producer[rows] if made >= 0} - seen
        if any(weighs(side, made) for made in above):
            return True
        seen |= above
        waiting.extend(above)
    return False


def readers_of(side: Side, rows: Sequence[int]) -> list[int]:
    """The leaf calls that read what some rows hold, as a view or not, in their order."""
    tensors = side.tensors
    versions = tensors.version[[*rows]]
    reading = np.isin(tensors.version, versions[versions >= 0]) & ~tensors.output
    calls: list[int] = tensors.call[reading & side.calls.leaf[tensors.call]].tolist()
    return calls


def places_of(side: Side, rows: Ints) -> list[tuple[int, int]]:
    """Rank and step of each of some rows."""
    calls = side.tensors.call[rows]
    return list(zip(side.calls.rank[calls].tolist(), side.calls.step[calls].tolist(), strict=True))


def steps_of(side: Side) -> Ints:
    """The rank and step of each call, as one number."""
    steps: Ints = side.calls.rank * (1 << 32) + side.calls.step
    return steps


def computes_nothing(op: str) -> bool:
    """Whether an operator computes nothing of what it is given."""
    traits = traits_of(op)
    return traits.idle or traits.view or traits.moves


def computing(side: Side) -> Bools:
    """Leaf calls that do more than view, convert or allocate."""
    return side.calls.leaf & side.which(side.calls.op, lambda op: not traits_of(op).idle)


def updating(side: Side) -> Bools:
    """Leaf calls of operators that are a whole update of parameters."""
    return side.calls.leaf & side.which(
        side.calls.op, lambda op: traits_of(op).tolerance == "optimizer"
    )


def handed_on(side: Side, call: int) -> int:
    """The row of what a call only hands on, a view or a copy of it; NONE for any other call."""
    rows = inputs_of(side, call) if traits_of(side.operator(call)).idle else []
    return rows[0] if len(rows) == 1 else NONE


def handed_down(side: Side, producer: Ints, row: int) -> list[int]:
    """A row, and those above it that were only handed on to it. producer: the call that made each
    row.
    """
    chain = [row]
    while (made := int(producer[chain[-1]])) >= 0:
        read = inputs_of(side, made)
        if not computes_nothing(side.operator(made)) or len(read) != 1:
            break
        chain.append(read[0])
    return chain


def all_made(sides: tuple[Side, Side], rows: tuple[list[int], list[int]]) -> bool:
    """Whether calls that are recorded made all of some rows of both sides."""
    return all(
        bool((side.tensors.output | side.tensors.parameter)[some].all())
        for side, some in zip(sides, rows, strict=True)
    )
