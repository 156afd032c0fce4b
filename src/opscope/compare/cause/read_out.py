# SPDX-License-Identifier: Apache-2.0
"""Numbers that two programs read out, where all that training shows agrees: an evaluation of an
average of the weights.

Metrics are nobody's cause, since each program has its own. But where the numbers before and behind
are the same on both sides, or the same but for the sign, and as many lie between, one that is not
is told, if what a model makes for it is apart on both sides.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.results import read_out
from opscope.compare.cause.what_matters import PARAMETER
from opscope.compare.side.call_rows import given_to, inputs_of, places_of
from opscope.compare.side.columns import ABSENT
from opscope.operators.catalogue import traits_of
from opscope.run.hashes import distinct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opscope.arrays import Bools, Floats, Ints
    from opscope.compare.cause.trained_states import Apart
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

    Numbers = list[tuple[Place, float]]
    Making = tuple[object, ...]
    Aligned = tuple[list[Ints], list[list[Place]], list[tuple[int, int]]]

MOST_BETWEEN = 64  # numbers that one side alone reads out in between
SUMMED = 4e-6  # of its parts: by which a loss is off their sum, rounded in other places
SEVERAL = 3  # numbers that are close to the other side's by no chance
CLOSE = 0.02  # of themselves, to which several numbers are no others by chance
MAX_ABOVE = 1000  # calls looked at above a number
KINDS = 4  # of numbers that a program reads out, by what makes them, of which each may be losses


def read_out_apart(
    pairing: Pairing, meetings: Meetings, unmet: tuple[Bools, Bools], *, alone: bool
) -> tuple[int, Apart | None]:
    """How many numbers both sides read out, and the first of these that is not the same, since what
    their models make is not; None where there is none, or where it may be another metric.

    unmet: rows of either side that meet nothing; alone: whether such numbers are all that the two
    have in common, as where one trains functions of plain tensors: each may be a loss then.
    """
    sides, flows = (pairing.target, pairing.golden), pairing.flows
    aligned = _aligned(pairing, meetings)
    both, numbers = _unlike(pairing, aligned, unmet, alone=alone)
    if not both:
        both, apart = _by_sums(pairing, aligned)
        return (both, apart) if both or not alone else _by_closeness(pairing, aligned, unmet)
    for place, *pair in numbers:
        columns = zip(sides, flows, pair, unmet, strict=True)
        if alone or all(_by_a_model(*each) for each in columns):
            return both, (place, PARAMETER, ([pair[0]], [pair[1]]))
    return both, None


def _by_sums(pairing: Pairing, aligned: Aligned) -> tuple[int, Apart | None]:
    """The same of numbers of which one side reads out the parts: losses of parts of a batch, whose
    sum or mean is the other's loss, each as many parts, and behind them what both read out whole,
    as an evaluation is; or losses of models that it trains one after the other.
    """
    rows, places, _ = aligned
    few = int(len(rows[0]) > len(rows[1]))
    if not len(rows[few]):
        return 0, None
    sides, flows = (pairing.target, pairing.golden), pairing.flows
    made = [_makings(sides[side], flows[side], rows[side]) for side in (few, 1 - few)]
    chosen = [  # either may read out metrics, too
        [np.ones_like(kinds, dtype=np.bool_), *(kinds == kind for kind in distinct(kinds)[:KINDS])]
        for kinds in made
    ]
    for wholes, some in product(*chosen):
        whole, parts = rows[few][wholes], rows[1 - few][some]
        at, parts_at = (
            [each for each, taken in zip(places[side], flags.tolist(), strict=True) if taken]
            for side, flags in ((few, wholes), (1 - few, some))
        )
        kinds = made[0][wholes]
        for order, sizes in _cuts(len(whole), len(parts)):
            owners = np.repeat(np.arange(len(whole)), sizes).tolist()
            within = [at[each] for each in owners] == [parts_at[each] for each in order]
            if not (within and (kinds[sizes > 1] == kinds[0]).all()):
                continue
            read = sides[1 - few].tensors.max[parts[order]]
            off = _off_sums(sides[few].tensors.max[whole], read, sizes)
            if off is not None:
                first = int(np.argmax(off))
                group = np.split(parts[order], np.cumsum(sizes)[:-1])[first]
                ends = [[int(whole[first])], group.tolist()]
                unlike = at[first], PARAMETER, (ends[few], ends[1 - few])
                return int((~off).sum()), unlike if off.any() else None
    return 0, None


def _off_sums(values: Floats, parts: Floats, sizes: Ints) -> Bools | None:
    """Which of some numbers is not the sum of its parts, or not their mean; None where the first is
    neither.
    """
    begins = np.cumsum(sizes) - sizes
    sums, reach = (np.add.reduceat(each, begins) for each in (parts, np.abs(parts)))
    for expected in (sums, sums / sizes):
        off: Bools = np.abs(expected - values) > SUMMED * reach
        if not off[0]:
            return off
    return None


def _by_closeness(
    pairing: Pairing, aligned: Aligned, unmet: tuple[Bools, Bools]
) -> tuple[int, Apart | None]:
    """The same of numbers that are made alike, as many on both sides, each of which is close to the
    other side's though it meets nothing: losses, of which one is wrong from the first step on.
    """
    rows, places, _ = aligned
    sides, flows = (pairing.target, pairing.golden), pairing.flows
    series = [
        _made_alike(side, flow, some) for side, flow, some in zip(sides, flows, rows, strict=True)
    ]
    nearest: tuple[float, int, int, int] | None = None
    for mine, theirs in product(*series):
        both = rows[0][mine], rows[1][theirs]
        if len(mine) != len(theirs) or len(mine) < SEVERAL:
            continue
        if not all(flags[some].all() for flags, some in zip(unmet, both, strict=True)):
            continue
        values = [side.tensors.max[some] for side, some in zip(sides, both, strict=True)]
        off = off_by(values[0], values[1])
        if [places[0][at] for at in mine] == [places[1][at] for at in theirs]:
            found = float(off.max()), len(mine), int(both[0][0]), int(both[1][0])
            nearest = min(nearest or found, found)
    if nearest is None or nearest[0] > CLOSE:
        return 0, None
    _, count, first, other = nearest
    return count, (places[0][0], PARAMETER, ([first], [other]))


def off_by(mine: Floats, theirs: Floats) -> Floats:
    """How far numbers are from others, of these and whatever their signs; 0 where both are 0, or
    neither is a number.
    """
    own, others = np.abs(mine), np.abs(theirs)
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.nan_to_num(np.abs(own - others) / np.fmax(own, others), nan=1.0, posinf=1.0)
    alike: Floats = np.where((own == others) | (np.isnan(own) & np.isnan(others)), 0.0, off)
    return alike


def _made_alike(side: Side, flow: Flow, rows: Ints) -> list[list[int]]:
    """Places among some rows, of those together that the same operators make."""
    kinds = _makings(side, flow, rows)
    return [np.flatnonzero(kinds == kind).tolist() for kind in distinct(kinds)]


def _makings(side: Side, flow: Flow, rows: Ints) -> Ints:
    """Which of some rows the same operators make, numbered as they come."""
    kinds: dict[Making, int] = {}
    makings = [_making(side, flow, row, alike=True) for row in rows.tolist()]
    return np.array([kinds.setdefault(making, len(kinds)) for making in makings], dtype=np.int64)


def _cuts(whole: int, parts: int) -> Iterator[tuple[Ints, Ints]]:
    """The ways in which numbers may be of parts: the parts of the first, of the second and so on,
    and how many each has. The first of them have as many, one after the other, and those behind
    them one; or all have as many, of one training after the other.
    """
    places = np.arange(parts)
    for each in range(2, parts + 1):
        cut, odd = divmod(parts - whole, each - 1)
        if not odd and 0 < cut <= whole:
            yield places, np.repeat([each, 1], [cut, whole - cut])
    if parts % whole == 0:
        yield places.reshape(-1, whole).T.ravel(), np.full(whole, parts // whole)


def first_unlike(
    pairing: Pairing, meetings: Meetings, unmet: tuple[Bools, Bools]
) -> tuple[int, int] | None:
    """The rows of the first number that both sides read out and that is not the same, whatever it
    is computed from; None where there is none.
    """
    _, numbers = _unlike(pairing, _aligned(pairing, meetings), unmet, alone=False)
    return next(((mine, theirs) for _, mine, theirs in numbers), None)


def _unlike(
    pairing: Pairing, aligned: Aligned, unmet: tuple[Bools, Bools], *, alone: bool
) -> tuple[int, list[tuple[Place, int, int]]]:
    """How many numbers both sides read out, and those of them that meet nothing on either side:
    their places and rows.
    """
    rows, places, same = aligned
    pairs, counted = list(_between(same, *map(len, rows))), False
    if len(same) + len(pairs) < min(map(len, rows)):
        pairs, counted = _made_like(pairing, rows, same), alone
    both = len(same) + len(pairs)
    if not alone and len(pairs) > len(same):
        return both, []
    often = [Counter(some) for some in places]
    numbers = [
        (places[0][i], int(rows[0][i]), int(rows[1][j]))
        for i, j in pairs
        if places[0][i] == places[1][j]
        and (counted or not alone or often[0][places[0][i]] == often[1][places[0][i]])
    ]
    if alone:
        every = zip(*same, *pairs, strict=True)
        of_both = [some[[*at]] for some, at in zip(rows, every, strict=True)] if both else rows
        numbers = _without_means(pairing, of_both, numbers)
    return both, [each for each in numbers if unmet[0][each[1]] and unmet[1][each[2]]]


def _without_means(
    pairing: Pairing, rows: list[Ints], numbers: list[tuple[Place, int, int]]
) -> list[tuple[Place, int, int]]:
    """Those that are made of all numbers so far on neither side, or on both: a running mean begins
    as the other's loss does.
    """
    columns = zip((pairing.target, pairing.golden), pairing.flows, rows, strict=True)
    run = [_running(side, flow, sorted({*some.tolist()})) for side, flow, some in columns]
    return [each for each in numbers if (each[1] in run[0]) == (each[2] in run[1])]


def _running(side: Side, flow: Flow, rows: list[int]) -> set[int]:
    """Those of some numbers that are made, by numbers alone, of an earlier one, or of what a model
    made for that and it was made of last.
    """
    earliest: dict[int, int] = {}
    for row in rows:
        for above in (row, *_made_of(side, flow, row)):
            if above not in earliest and _by_a_model(side, flow, above):
                earliest[above] = row
    return {
        row
        for row in rows
        if any(earliest.get(above, row) < row for above in _numbers_above(side, flow, row))
    }


def _numbers_above(side: Side, flow: Flow, row: int) -> Iterator[int]:
    """The numbers that a number is made of, by and by, by numbers alone."""
    seen, waiting = {row}, [row]
    while waiting and len(seen) < MAX_ABOVE:
        above = [each for each in _made_of(side, flow, waiting.pop()) if each not in seen]
        seen.update(above)
        waiting.extend(above)
        yield from above


def _made_of(side: Side, flow: Flow, row: int) -> list[int]:
    """The rows in which the numbers were written that the call which wrote a row reads."""
    read = flow.source_row[inputs_of(side, int(side.tensors.call[row]))].tolist()
    return [above for above in read if above >= 0 and side.tensors.size[above] == 1]


def read_out_alike(pairing: Pairing, meetings: Meetings) -> bool | None:
    """Whether both sides read out numbers that their models made, and the same ones; None where
    they do not read out as many, which tells nothing.
    """
    rows, _, same = _aligned(pairing, meetings)
    if len(rows[0]) != len(rows[1]):
        return None
    return bool(same) and len(same) == len(rows[0])


def _aligned(pairing: Pairing, meetings: Meetings) -> Aligned:
    """The rows that hold the numbers that either side reads out, their places, and which of them
    are one number.
    """
    sides, flows = (pairing.target, pairing.golden), pairing.flows
    rows = [_once(model_numbers(side, flow)) for side, flow in zip(sides, flows, strict=True)]
    places = [places_of(side, some) for side, some in zip(sides, rows, strict=True)]
    mine, theirs = (
        [(place, float(value)) for place, value in zip(at, side.tensors.max[some], strict=True)]
        for side, some, at in zip(sides, rows, places, strict=True)
    )
    limit = float(meetings.limit[0][rows[0]].max(initial=0.0))
    return rows, places, _same(mine, theirs, limit)


def _once(rows: Ints) -> Ints:
    """Rows in their order, each once: a program may read out a loss for the log, too."""
    _, first = np.unique(rows, return_index=True)
    once: Ints = rows[np.sort(first)]
    return once


def _same(mine: Numbers, theirs: Numbers, limit: float) -> list[tuple[int, int]]:
    """Entries of both that are one number, one after the other, whatever its sign."""
    same, start = list[tuple[int, int]](), 0
    for j, (place, value) in enumerate(theirs):
        for i in range(start, min(start + MOST_BETWEEN, len(mine))):
            near = abs(abs(mine[i][1]) - abs(value)) <= limit * abs(value)
            if mine[i][0] == place and near:
                same.append((i, j))
                start = i + 1
                break
    return same


def _made_like(
    pairing: Pairing, rows: list[Ints], same: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Entries of either side that are computed as those are that are the same, where both sides
    have as many: a program may read out what another does not.
    """
    sides = pairing.target, pairing.golden
    for alike in (False, True):  # a mean of another number of tokens is another call
        makings = [
            [_making(side, flow, row, alike=alike) for row in some.tolist()]
            for side, flow, some in zip(sides, pairing.flows, rows, strict=True)
        ]
        pairs = set[tuple[int, int]]()
        for mine, theirs in {(makings[0][i], makings[1][j]) for i, j in same}:
            entries = [
                [at for at, making in enumerate(each) if making == wanted]
                for each, wanted in zip(makings, (mine, theirs), strict=True)
            ]
            if len(entries[0]) == len(entries[1]):
                pairs.update(zip(*entries, strict=True))
        if pairs - set(same):
            return sorted(pairs - set(same))
    return []


def _making(side: Side, flow: Flow, row: int, depth: int = 2, *, alike: bool = False) -> Making:
    """Operators and arguments of the call that wrote a row, and of those that wrote what it reads;
    alike: operators alone.
    """
    call = int(side.tensors.call[row])
    made = int(side.calls.op[call]), 0 if alike else int(side.calls.args[call])
    if not depth:
        return made
    read = [int(source) for source in flow.source_row[given_to(side, call)]]  # no updates
    above = (source for source in read if source >= 0)
    return *made, *(_making(side, flow, source, depth - 1, alike=alike) for source in above)


def _between(same: list[tuple[int, int]], mine: int, theirs: int) -> Iterator[tuple[int, int]]:
    """Entries between those that are the same, where both sides have as many."""
    for (i, j), (k, m) in pairwise([(-1, -1), *same, (mine, theirs)]):
        if k - i == m - j:
            yield from zip(range(i + 1, k), range(j + 1, m), strict=True)


def model_numbers(side: Side, flow: Flow) -> Ints:
    """The rows that hold what a program reads out as a number and a model computed, in the order
    in which it does.
    """
    tensors, rows = side.tensors, read_out(side)
    numbers = (tensors.size[rows] == 1) & (tensors.min_int[rows] == ABSENT)
    read = flow.source_row[rows[numbers]]
    return np.array(
        [row for row in read[read >= 0].tolist() if _by_a_model(side, flow, row)], dtype=np.int64
    )


def _by_a_model(side: Side, flow: Flow, row: int, through: Bools | None = None) -> bool:
    """Whether a product, as a model's layers are, is among what a number is computed from; through:
    by rows of these alone.
    """
    seen, waiting = set[int](), [int(side.tensors.call[row])]
    while waiting and len(seen) < MAX_ABOVE:
        call = waiting.pop()
        if call in seen:
            continue
        seen.add(call)
        if traits_of(side.operator(call)).contraction:
            return True
        read = [row for row in inputs_of(side, call) if through is None or through[row]]
        waiting.extend(above for above in flow.producer[read].tolist() if above >= 0)
    return False
