# SPDX-License-Identifier: Apache-2.0
"""What one program computes of a part of the data that the other computes of all of it: of each
sequence without its last token, which a model of the other may cut off behind its last layer.

Of so many elements, all but a few, the least or the most is nearly always that of the whole.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opscope.compare.side.call_rows import computes_nothing, inputs_of, outputs_of
from opscope.compare.side.columns import ABSENT
from opscope.operators.catalogue import traits_of
from opscope.run.hashes import mixed

if TYPE_CHECKING:
    from opscope.arrays import Bools, Floats, Ints, Words
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

LEAST = Fraction(2, 3)  # of the data: less is a part of a batch
FEWEST = 8  # elements of data that may be cut
SPREAD = 4.0  # times by which the squares of what is cut off may be more, or less, than of all
MOST_SHARES = 4
EXACT = 1e-4  # of the sum of what is cut off, as statistics tell it
NEIGHBOURS = 4  # tensors of the nearest extremes, to either side, that are looked at
WRITTEN = 1e4  # times which a number that is written down is a whole one
NEAR_WRITTEN = 1e-2  # of that, where statistics may round it
MAX_BACK = 8  # calls between a part and where it is cut out
SHARED = 1e-5  # of an extreme: what is nearer to another, and not the same, is a function's bound


class Cut(NamedTuple):
    """A row that is a part of another side's, that row, and how far the extremes that are the same
    are apart.
    """

    part: int
    whole: int
    error: float


def cut_tables(side: Side) -> list[tuple[int, int]]:
    """Tables of integers that a program computes with a part of, and that part: rows of a call."""
    tensors = side.tensors
    moves = side.which(side.calls.op, lambda op: traits_of(op).moves) & side.calls.leaf
    table = ~tensors.parameter & (tensors.min_int != ABSENT) & (tensors.size >= FEWEST)
    reading = np.unique(tensors.call[table & moves[tensors.call] & ~tensors.output])
    return [
        (given, made)
        for call in reading.tolist()
        for given, made in product(inputs_of(side, call), outputs_of(side, call))
        if table[given] and table[made] and LEAST <= _share(side, given, made) < 1
    ]


def shares(side: Side, tables: list[tuple[int, int]]) -> set[Fraction]:
    """Which parts of the tables those are, the most frequent of them, and of what has an element
    for each two of theirs.
    """
    often = Counter(_share(side, given, made) for given, made in tables).most_common(MOST_SHARES)
    return {power for share, _ in often for power in (share, share * share)}


def _share(side: Side, given: int, made: int) -> Fraction:
    return Fraction(int(side.tensors.size[made]), int(side.tensors.size[given]))


def cuts(
    side: Side, parts: Ints, other: Side, wholes: Ints, *, share: Fraction, limit: float
) -> list[Cut]:
    """The parts that are this share of some of the wholes, rows of either side, within a limit."""
    size = side.tensors.size[parts]
    whole_size = size * share.denominator // share.numerator
    fits = (whole_size * share.numerator == size * share.denominator) & (size >= FEWEST)
    parts, keys = parts[fits], placed(side, parts[fits], whole_size[fits])
    theirs = placed(other, wholes, other.tensors.size[wholes])
    best: dict[int, Cut] = {}
    for extreme in ("min", "max"):
        bounds = at_bounds(side, extreme, parts)
        values = getattr(other.tensors, extreme)[wholes]
        order = np.lexsort((values, theirs))
        first = np.searchsorted(theirs[order], keys)
        end = np.searchsorted(theirs[order], keys, side="right")
        for part, start, stop in zip(parts.tolist(), first.tolist(), end.tolist(), strict=True):
            own = getattr(side.tensors, extreme)[part]
            at = start + int(np.searchsorted(values[order[start:stop]], own))
            beside = wholes[order[max(at - NEIGHBOURS, start) : min(at + NEIGHBOURS, stop)]]
            if not len(beside) or written(own) or part in bounds:
                continue
            error = _error(side, part, other, beside, extreme=extreme)
            nearest = int(np.argmin(error))
            cut = Cut(part, int(beside[nearest]), float(error[nearest]))
            if cut.error <= limit and (part not in best or cut.error < best[part].error):
                best[part] = cut
    return list(best.values())


def at_bounds(side: Side, extreme: str, rows: Ints) -> set[int]:
    """The rows of which an extreme is as low, or as high, as some function ever gets, which tells
    nothing of what it is given: another result of the step comes next to it, as all do behind GELU,
    or one of the operator comes to the very same, which is another by its norm. What is computed of
    it has the very same, too.
    """
    tensors = side.tensors
    values, place = getattr(tensors, extreme), placed(side, rows, np.zeros_like(rows))
    ops = side.calls.op[tensors.call]
    order = np.lexsort((ops[rows], values[rows], place))
    rows, at = rows[order], place[order]
    ordered = values[rows]
    made = tensors.output & ~side.which(side.calls.op, computes_nothing)[tensors.call]
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.diff(ordered))
        near = (apart > 0) & (apart <= SHARED * np.abs(ordered[1:]))
        norm = tensors.l2norm[rows]
        other = np.abs(np.diff(norm)) > SHARED * norm[1:]
    again = (apart == 0) & other & (np.diff(ops[rows]) == 0) & made[rows[1:]] & made[rows[:-1]]
    shared = (near | again) & (at[1:] == at[:-1])
    beside = np.zeros(len(rows), dtype=bool)
    beside[1:] |= shared
    beside[:-1] |= shared
    return set(rows[beside].tolist())


def cut_from_apart(side: Side, flow: Flow, apart: Bools, part: int) -> bool:
    """Whether a part comes of something that is cut out of a whole which is apart from everything:
    then its extreme may be that of what no fault has reached, as first tokens in a causal model.
    What is split into several may be apart for being one, as a fused projection is.
    """
    tensors = side.tensors
    for _ in range(MAX_BACK):
        made = part if tensors.output[part] else int(flow.source_row[part])
        if made < 0:
            return False
        call = int(tensors.call[made])
        read = [row for row in inputs_of(side, call) if not tensors.parameter[row]]
        if not read:
            return False
        whole = max(read, key=lambda row: int(tensors.size[row]))
        if not apart[whole] or tensors.size[whole] > tensors.size[part]:
            cut = traits_of(side.operator(call)).moves and len(outputs_of(side, call)) == 1
            return bool(apart[whole] and cut)
        part = whole
    return False


def placed(side: Side, rows: Ints, sizes: Ints) -> Words:
    """One number for each rank, step and size of rows that count as of these sizes."""
    calls, owner = side.calls, side.tensors.call[rows]
    return mixed(
        calls.rank[owner].astype(np.uint64),
        calls.step[owner].astype(np.uint64),
        sizes.astype(np.uint64),
    )


def _error(side: Side, part: int, other: Side, wholes: Ints, *, extreme: str) -> Floats:
    """How far a part's least or most is from that of each of the wholes; inf where that does not
    hold the part, or is of another size.
    """
    mine, theirs = side.tensors, other.tensors
    own, others = getattr(mine, extreme)[part], getattr(theirs, extreme)[wholes]
    with np.errstate(invalid="ignore", divide="ignore"):
        slack = np.abs(own - others)
        error = slack / np.fmax(np.abs(own), np.abs(others))
        held = (theirs.min[wholes] <= mine.min[part] + slack) & (
            theirs.max[wholes] >= mine.max[part] - slack
        )
        rest = theirs.size[wholes] - mine.size[part]
        total = theirs.mean[wholes] * theirs.size[wholes] - mine.mean[part] * mine.size[part]
        squares = theirs.l2norm[wholes] ** 2 - mine.l2norm[part] ** 2
        power = squares / rest / (theirs.l2norm[wholes] ** 2 / theirs.size[wholes])
        held &= total**2 <= rest * squares * (1 + EXACT)
        held &= (power <= SPREAD) & (power >= 1 / SPREAD)
    return np.where(held & np.isfinite(error), error, np.inf)


def written(numbers: Floats) -> Bools:
    """Which numbers a program may write down."""
    with np.errstate(invalid="ignore"):
        times = numbers * WRITTEN
        whole: Bools = np.abs(times - np.round(times)) <= NEAR_WRITTEN
    return whole
