# SPDX-License-Identifier: Apache-2.0
"""What calls outside of compiled graphs read of what graphs made or wrote in place, beside what the
same calls of the program that was not compiled read.

Calls are the same where operator and line of the program are, in one step and on one rank, and both
sides make as many of them: inside of a graph no line is executed, so these stand outside of it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.parted_calls import AMPLIFIED, added_up, reach_of
from opscope.compare.pair.meetings import coarse_unit, limits_of
from opscope.compare.pair.tensors import statistic_error
from opscope.compare.side.columns import ABSENT, OPERATOR
from opscope.questions.rows import rows_of_calls
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side


def read_otherwise(pairing: Pairing, graphs: Bools, around: Ints) -> Bools:
    """The target's graphs of which a call outside of them reads something else than golden's same
    call does. around: the graph in which each call lies, NONE outside.
    """
    side, golden = pairing.target, pairing.golden
    otherwise = np.zeros(len(side.calls), dtype=np.bool_)
    maker = pairing.flows[0].producer
    made = (maker >= 0) & graphs[np.maximum(maker, 0)]
    read = ~side.tensors.output & made & (side.tensors.nan >= 0)
    readers = np.unique(side.tensors.call[read])
    readers = readers[(around[readers] == NONE) & _asked(side)[readers]]
    partner = _same_calls(pairing, readers, around)
    pairs = [
        (row, other)
        for row in np.flatnonzero(read & (partner[side.tensors.call] >= 0)).tolist()
        for other in _same_slot(side, golden, row, int(partner[side.tensors.call[row]]))
    ]
    if pairs:
        left, right = np.array(pairs).T
        otherwise[maker[left[_apart(pairing, maker[left], left, right)]]] = True
    return otherwise


def _asked(side: Side) -> Bools:
    """Operators of a forward pass that hold no other call."""
    calls = side.calls
    forward = side.in_phase("forward")
    asked: Bools = forward & calls.leaf & (calls.level == OPERATOR)
    return asked


def _same_calls(pairing: Pairing, readers: Ints, around: Ints) -> Ints:
    """For each call of the target golden's same call, where it is one of these."""
    side, golden = pairing.target, pairing.golden
    partner = np.full(len(side.calls), NONE)
    words = {side.operator(call) for call in readers.tolist()}
    mine, theirs = (_by_place(run, words) for run in (side, golden))
    wanted = set(readers.tolist())
    for site, calls in mine.items():
        others = theirs.get(site, [])
        inside = any(around[call] != NONE for call in calls)
        if len(calls) == len(others) and not inside:
            for call, other in zip(calls, others, strict=True):
                partner[call] = other if call in wanted else NONE
    return partner


def _by_place(side: Side, words: set[str]) -> dict[tuple[int, int, str, str], list[int]]:
    """Calls of these operators by rank, step, operator and line, in their order."""
    by_site: defaultdict[tuple[int, int, str, str], list[int]] = defaultdict(list)
    calls = side.calls
    asked = np.flatnonzero(_asked(side) & side.which(calls.op, lambda op: op in words))
    source = dict(rows_of_calls(side.run, np.unique(calls.key[asked]), "source"))
    for call in asked.tolist():
        line = source.get(int(calls.key[call]))
        if line is not None:
            site = (int(calls.rank[call]), int(calls.step[call]), side.operator(call))
            by_site[(*site, line)].append(call)
    return by_site


def _same_slot(side: Side, golden: Side, row: int, call: int) -> list[int]:
    """Golden's row of that call in the slot of a row, if it is as large and of its type."""
    mine, theirs = side.tensors, golden.tensors
    first, last = np.searchsorted(theirs.call, [call, call + 1]).tolist()
    return [
        other
        for other in range(first, last)
        if not theirs.output[other]
        and theirs.nan[other] >= 0
        and all(
            getattr(mine, name)[row] == getattr(theirs, name)[other]
            for name in ("slot", "shape", "dtype")
        )
    ]


def _apart(
    pairing: Pairing,
    graph: Ints,
    left: Ints,
    right: Ints,
) -> Bools:
    """Which of these rows, of what a graph each made, no rounding brings so far from golden's.

    Not told are integers of a graph that is given other numbers, by which ties are broken, and what
    is rounding alone beside what golden's operator added up.
    """
    side, golden = pairing.target, pairing.golden
    limit = AMPLIFIED * limits_of(side, coarse_unit((side, golden)))[left]
    error = statistic_error(side.tensors, golden.tensors, left, right)
    reach = np.fmax(reach_of(side)[left], reach_of(golden)[right])
    added = pairing.flows[1].producer[right]
    tiny = reach <= limit * added_up(golden, pairing.flows[1])[np.maximum(added, 0)]
    whole = side.tensors.min_int != ABSENT
    mixed = np.zeros(len(side.calls), dtype=np.bool_)
    given = np.isin(side.tensors.call, graph) & ~side.tensors.output
    mixed[side.tensors.call[given & ~whole]] = True
    unsound = side.tensors.nan[left] + side.tensors.pos_inf[left] + side.tensors.neg_inf[left] > 0
    choosing = whole[left] & mixed[graph]
    apart: Bools = (error > limit) & (unsound | ~(tiny & (added >= 0))) & ~choosing
    return apart
