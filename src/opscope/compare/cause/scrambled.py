# SPDX-License-Identifier: Apache-2.0
"""What two calls read in another order, where values are kept or two tensors are joined in each
other's place: the calls that made it so.

Statistics know no order, so a tensor meets its own permutation, and the two part at the first call
to which the order matters. One operator that reads the same weights beside numbers of one shape has
to read them in one order; where it does not, what it reads is followed back to the first call whose
own inputs are as golden's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.cause.crossed_inputs import JOINED, joined_otherwise, reads_alike
from opscope.compare.cause.start_pairs import one_family
from opscope.compare.cause.turned_parameters import turned_parameter
from opscope.compare.pair.arguments import difference_of
from opscope.compare.side.call_rows import inputs_of
from opscope.compare.side.records import tensor_records
from opscope.compare.verdict.axis_order import best_pair
from opscope.compare.verdict.stored_values import error_of
from opscope.errors import FormatError, MissingValueError, UsageError
from opscope.kernels.pair import pair
from opscope.operators.catalogue import kin, traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opscope.compare.cause.partings import Parting
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing

ORDER = "gives golden's numbers in another order"
AGREES = 1e-3  # of the norm: less is the same order
MOST_BACK = 64  # calls that it is followed back through
LEAST = 8  # elements: fewer, as the numbers of axes, are the same in some order by chance
MOST_VIEWS = 4  # of a weight, one of another
ALIKE, MOST_ALIKE = (
    1e-6,
    16,
)  # by how much statistics of the same numbers are apart, how many are read
Rows = tuple[int, int]  # of target and golden


def by_order(pairing: Pairing, meetings: Meetings, parting: Parting, *, values: bool) -> Parting:
    """A parting, or the calls further up that put in another order what its starts read. values:
    whether those that are kept may be read.
    """
    order, words = scrambled(pairing, meetings, parting.start) if values else None, ORDER
    if order is None and _unexplained(pairing, meetings, parting):
        order, words = joined_otherwise(pairing, meetings, parting.start), JOINED
    if order is None:
        return parting
    region = tuple((call, start) for call, start in zip(order, parting.start, strict=True))
    return msgspec.structs.replace(
        parting,
        start=order,
        region=(region[0], region[1]),
        row=NONE,
        words=words,
        crossed=False,
    )


def _unexplained(pairing: Pairing, meetings: Meetings, parting: Parting) -> bool:
    """Whether neither operator, arguments nor parameters tell why two calls make another thing of
    what agrees.
    """
    mine, theirs = parting.start
    return (
        not parting.words
        and min(parting.start) >= 0
        and one_family(pairing, mine, theirs)
        and reads_alike(pairing, meetings, parting.start)
        and not difference_of(pairing, mine, theirs)
        and turned_parameter(pairing, mine, theirs) == NONE
    )


def scrambled(pairing: Pairing, meetings: Meetings, start: Rows) -> Rows | None:
    """The calls of either side whose results hold the same numbers in another order, as the two of
    start read them; None where they do not, or where values do not tell.
    """
    if min(start) < 0 or not _of_one_kin(pairing, start):
        return None
    met = [*_met(pairing, meetings, *start)]
    orders = [_in_order(pairing, rows) for rows in met]
    others = [rows for rows, order in zip(met, orders, strict=True) if order is not False]
    if len(others) == len(met) or not all(_agree_turned(pairing, rows) for rows in others):
        return None
    return _followed(pairing, meetings, met[orders.index(False)])


def _of_one_kin(pairing: Pairing, calls: Rows) -> bool:
    sides = pairing.target, pairing.golden
    words = [kin(side.operator(call)) for side, call in zip(sides, calls, strict=True)]
    return words[0] == words[1]


def _met(pairing: Pairing, meetings: Meetings, mine: int, theirs: int) -> Iterator[Rows]:
    """Inputs of a call of the target beside those of golden's that they meet."""
    states = pairing.flows[1].state
    read = {int(states[row]): row for row in inputs_of(pairing.golden, theirs)}
    for row in inputs_of(pairing.target, mine):
        partner = int(meetings.partner[0][row])
        if partner != NONE and int(states[partner]) in read:
            yield row, read[int(states[partner])]


def _followed(pairing: Pairing, meetings: Meetings, rows: Rows) -> Rows | None:
    """From two tensors of which one holds the other's numbers in another order back to the calls
    that made them of inputs which do not; None where that is what the program was given.
    """
    for _ in range(MOST_BACK):
        calls = _maker(pairing, 0, rows[0]), _maker(pairing, 1, rows[1])
        if min(calls) < 0:
            return None
        turned = [
            source
            for row in inputs_of(pairing.target, calls[0])
            if (source := _turned(pairing, meetings, row)) is not None
        ]
        if not turned:
            return calls
        rows = turned[0]
    return None


def _turned(pairing: Pairing, meetings: Meetings, row: int) -> Rows | None:
    """A tensor of the target beside golden's of its shape that holds the same numbers in another
    order; None where one holds them in the same, or none is of that shape.
    """
    like = [*_alike(pairing, meetings, row)]
    orders = [_in_order(pairing, rows) for rows in like]
    return like[0] if like and all(order is False for order in orders) else None


def _alike(pairing: Pairing, meetings: Meetings, row: int) -> Iterator[Rows]:
    """A tensor beside some of golden's step that have its shape and the statistics of what it
    meets: a view has another shape than what it is of.
    """
    partner = int(meetings.partner[0][row])
    if partner == NONE or pairing.target.tensors.size[row] < LEAST:
        return
    mine, golden = pairing.target.tensors, pairing.golden
    theirs = golden.tensors
    chosen = (theirs.shape == mine.shape[row]) & theirs.kept & golden.calls.leaf[theirs.call]
    for column in (golden.calls.rank, golden.calls.step):
        chosen &= column[theirs.call] == column[theirs.call[partner]]
    for name in ("min", "max", "l2norm"):
        held, known = getattr(theirs, name), float(getattr(theirs, name)[partner])
        chosen &= np.abs(held - known) <= ALIKE * abs(known)
    for other in np.flatnonzero(chosen)[:MOST_ALIKE].tolist():
        yield row, other


def _maker(pairing: Pairing, number: int, row: int) -> int:
    """The call that gave a tensor; NONE where none did."""
    tensors = (pairing.target, pairing.golden)[number].tensors
    return int(tensors.call[row] if tensors.output[row] else pairing.flows[number].producer[row])


def _in_order(pairing: Pairing, rows: Rows) -> bool | None:
    """Whether two tensors of one shape hold the same numbers in the same places; None where the
    shapes differ, or a value is not kept, and of weights, which each side may keep as it likes.
    """
    target, golden = pairing.target.tensors, pairing.golden.tensors
    if target.shape[rows[0]] != golden.shape[rows[1]]:
        return None
    if any(_is_weight(pairing, number, row) for number, row in enumerate(rows)):
        return None
    return _agrees(pairing, rows, turned=False)


def _is_weight(pairing: Pairing, number: int, row: int) -> bool:
    """Whether a tensor is a parameter, or a view of one."""
    side, flow = (pairing.target, pairing.golden)[number], pairing.flows[number]
    for _ in range(MOST_VIEWS):
        if side.tensors.parameter[row]:
            return True
        call = int(flow.producer[row])
        read = inputs_of(side, call) if call >= 0 else []
        if len(read) != 1 or not traits_of(side.operator(call)).moves:
            return False
        row = read[0]
    return False


def _agree_turned(pairing: Pairing, rows: Rows) -> bool:
    """Whether two tensors hold the same numbers in the same places once their axes are turned."""
    return bool(_agrees(pairing, rows, turned=True))


def _agrees(pairing: Pairing, rows: Rows, *, turned: bool) -> bool | None:
    sides = pairing.target, pairing.golden
    if not all(side.tensors.kept[row] for side, row in zip(sides, rows, strict=True)):
        return None
    try:
        values = [
            side.run.value(tensor_records(side, np.array([row]))[row])
            for side, row in zip(sides, rows, strict=True)
        ]
        metrics = best_pair(*values) if turned else pair(*values)
    except (FormatError, MissingValueError, UsageError, MemoryError):
        return None
    return None if metrics is None else error_of(metrics) <= AGREES
