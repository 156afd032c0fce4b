# SPDX-License-Identifier: Apache-2.0
"""The tensors of matched calls side by side, and how far they are apart by what the tables say of
them.

The error of a pair is relative: the largest of the differences of l2 norm, mean (to the root mean
square), minimum and maximum (to the largest magnitude). Equal digests are error 0; other integers,
another shape, another place of NaN or infinities are error inf; what nobody measured is NaN. One
pass of vector operations over all rows.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.pair.scratch import scratch_rows
from opscope.compare.side.columns import ABSENT, Side, Tensors
from opscope.compare.side.conditions import PRODUCT, error_kind, finite
from opscope.compare.side.producers import Flow
from opscope.compare.side.reduced_products import UNIT as REDUCED
from opscope.compare.side.reduced_products import reduced_products
from opscope.judge.tolerance import PRECISIONS
from opscope.run.access import access_of
from opscope.run.dtypes import DType, find_dtype
from opscope.run.hashes import distinct, folded, mixed, within_groups
from opscope.run.keys import NONE
from opscope.run.query import records

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Bytes, Floats, Ints, Words
    from opscope.compare.pair.alignment import Match
    from opscope.compare.pair.mapping_slots import Fixed

    Types = tuple[Words, Floats, Bools]
    Places = Ints | slice
    Judged = tuple[Floats, Bytes, Floats, Bools]

SAME, WITHIN, DIFFERS, UNKNOWN, SHAPE, TARGET_ONLY, GOLDEN_ONLY = range(7)
STATUS_WORDS = (
    "same",
    "within tolerance",
    "differs",
    "not measured",
    "shape differs",
    "only in target",
    "only in golden",
)
TOOLS_ORDER = 2e-6  # of sums that a dump's own tool took in float32, but in another order
TOOLS_ROUNDING = 1e-5  # of norms and means that a dump's own tool took in float32
_BLOCK = 1 << 16  # pairs that are measured at once
_MASK = 8192.0  # magnitude from which on a constant is taken for a mask's
_REORDERED_LIMIT = 1_000_000  # larger tensors hide one changed bit from their mean


class Rows(msgspec.Struct, frozen=True):
    """One row for each pair of tensors and each tensor without a partner; target and golden are
    places in Side.tensors or NONE.

    error is relative, NaN where unknown; status is one of the codes above; roundoff is the finer of
    the two types' (0 for integers), or that of the products where one side computes most of them in
    a coarser type; allowed is what the judgement lets pass.
    least: the error is what statistics prove at least, and may be larger. Places are of
    side.columns.index_type.
    """

    target: Array
    golden: Array
    target_call: Array
    golden_call: Array
    output: Bools
    error: Floats
    allowed: Floats
    status: Bytes
    roundoff: Floats
    reordered: Bools
    least: Bools

    def __len__(self) -> int:
        return len(self.target)


def pair_rows(
    target: Side, golden: Side, flows: tuple[Flow, Flow], match: Match, fixed: Fixed | None = None
) -> Rows:
    """Pair the tensors of matched calls, by slot, then by place; everything else stands alone.
    Unread pairs have status UNKNOWN.

    fixed: what a mapping file says of single tensors.
    """
    left, right = _paired(target.tensors, golden.tensors, match, fixed)
    if left is right:
        return _judged(
            (target, golden), flows, (left, right), (target.tensors.call, golden.tensors.call)
        )
    alone_t, alone_g = _without(len(target.tensors), left), _without(len(golden.tensors), right)
    mine = np.concatenate([left, alone_t, np.full(len(alone_g), NONE)])
    theirs = np.concatenate([right, np.full(len(alone_t), NONE), alone_g])
    owners_t, owners_g = (
        target.tensors.call[mine[: len(mine) - len(alone_g)]],
        golden.tensors.call[alone_g],
    )
    call_t = np.concatenate([owners_t, match.golden[owners_g]])
    call_g = np.concatenate(
        [golden.tensors.call[right], match.target[owners_t[len(left) :]], owners_g]
    )
    placed = np.where(call_t >= 0, call_t, np.iinfo(call_t.dtype).max)
    if np.any(placed[1:] < placed[:-1]):
        order = np.lexsort((np.arange(len(mine)), call_g, placed))
        mine, theirs, call_t, call_g = mine[order], theirs[order], call_t[order], call_g[order]
    return _judged((target, golden), flows, (mine, theirs), (call_t, call_g))


def _judged(
    sides: tuple[Side, Side],
    flows: tuple[Flow, Flow],
    tensors: tuple[Ints, Ints],
    calls: tuple[Ints, Ints],
) -> Rows:
    """Rows of these tensors and calls in order, pairs measured by what the tables say of them."""
    mine, theirs = tensors
    error, status, roundoff = (
        np.full(len(mine), np.nan),
        np.full(len(mine), GOLDEN_ONLY, dtype=np.uint8),
        np.zeros(len(mine)),
    )
    reordered, output = np.zeros(len(mine), dtype=np.bool_), np.zeros(len(mine), dtype=np.bool_)
    types = roundoffs(sides[0]), roundoffs(sides[1])
    alone = np.flatnonzero((mine < 0) | (theirs < 0))
    both: Places = slice(None)
    if len(alone):
        both = np.flatnonzero((mine >= 0) & (theirs >= 0))
        one_sided = alone[theirs[alone] < 0]
        other = alone[theirs[alone] >= 0]
        status[one_sided] = TARGET_ONLY
        output[one_sided], output[other] = (
            sides[0].tensors.output[mine[one_sided]],
            sides[1].tensors.output[theirs[other]],
        )
    error[both], status[both], roundoff[both], reordered[both] = _measured(
        sides, flows, types, mine[both], theirs[both]
    )
    output[both] = sides[0].tensors.output[mine[both]]
    scratch = scratch_rows(sides, mine, theirs)
    error[scratch], status[scratch] = (
        np.nan,
        np.where(theirs[scratch] >= 0, UNKNOWN, status[scratch]),
    )
    reduced = reduced_products(sides[0]), reduced_products(sides[1])
    coarse = coarser_products(*sides, types, reduced)
    if coarse:
        roundoff = np.where(roundoff > 0, np.maximum(roundoff, coarse), roundoff)
    short = output & (flags_at(reduced[0], calls[0]) | flags_at(reduced[1], calls[1]))
    roundoff = np.where(short & (roundoff > 0), np.maximum(roundoff, REDUCED), roundoff)
    least = (error > 0) & np.isfinite(error) & ~reordered
    allowed = np.broadcast_to(np.nan, len(mine))  # nobody has judged yet
    return Rows(
        mine, theirs, *calls, output, error, allowed, status, folded(roundoff), reordered, least
    )


def flags_at(flags: Bools, places: Ints) -> Bools:
    """The flag at each place, of a side's calls or tensors; False where that is NONE."""
    return np.append(flags, False)[places]


def _without(count: int, rows: Ints) -> Ints:
    free = np.ones(count, dtype=np.bool_)
    free[rows] = False
    return np.flatnonzero(free)


def _paired(
    target: Tensors, golden: Tensors, match: Match, fixed: Fixed | None
) -> tuple[Ints, Ints]:
    """Rows of matched calls that belong together: the same slot, then what is left by its place
    among inputs or outputs.
    """
    left, right = _laid_out_alike(target, golden, match)
    if fixed is not None:
        given = fixed.rows
        free = ~(np.isin(left, given[0]) | np.isin(right, given[1]))
        left, right = (
            np.concatenate([fixed.pairs[:, 0], left[free]]),
            np.concatenate([fixed.pairs[:, 1], right[free]]),
        )
    if len(left) in (len(target), len(golden)):
        return left, right  # one side has nothing left
    lefts, rights = [left], [right]
    for key in (_by_slot, _by_place):
        mine = _waiting(target, match.target, lefts if fixed is None else [*lefts, fixed.alone[0]])
        theirs = _waiting(
            golden, match.golden, rights if fixed is None else [*rights, fixed.alone[1]]
        )
        keys = (
            key(target, mine, target.call[mine]),
            key(golden, theirs, match.golden[golden.call[theirs]]),
        )
        _, at, other = np.intersect1d(*keys, return_indices=True)
        lefts.append(mine[at])
        rights.append(theirs[other])
    return np.concatenate(lefts), np.concatenate(rights)


def _waiting(tensors: Tensors, match: Ints, paired: list[Ints]) -> Ints:
    """Rows of matched calls that have no partner yet."""
    free = match[tensors.call] >= 0 if len(match) else np.zeros(len(tensors), dtype=np.bool_)
    for rows in paired:
        free[rows] = False
    return np.flatnonzero(free)


def _laid_out_alike(target: Tensors, golden: Tensors, match: Match) -> tuple[Ints, Ints]:
    """Rows of matched calls whose slots stand in the same order on both sides, without sorting
    anything.
    """
    if (
        len(target) == len(golden)
        and np.array_equal(match.target[target.call], golden.call)
        and _same_slots(target, golden)
    ):
        every = np.arange(len(target), dtype=target.row.dtype)
        return every, every
    pairs = match.pairs
    starts, sizes = [], []
    for tensors, calls in ((target, pairs[:, 0]), (golden, pairs[:, 1])):
        counts = np.bincount(tensors.call, minlength=int(calls.max(initial=-1)) + 1)
        starts.append((np.cumsum(counts) - counts)[calls])
        sizes.append(counts[calls])
    alike = np.flatnonzero((sizes[0] == sizes[1]) & (sizes[0] > 0))
    size = sizes[0][alike]
    inner = within_groups(size)
    left, right = (np.repeat(start[alike], size) + inner for start in starts)
    other = (target.slot[left] != golden.slot[right]) | (
        target.output[left] != golden.output[right]
    )
    if not other.any():
        return left, right
    group = np.repeat(np.arange(len(alike)), size)
    odd = np.zeros(len(alike), dtype=np.bool_)
    odd[group[other]] = True
    even = ~odd[group]
    return left[even], right[even]


def _same_slots(target: Tensors, golden: Tensors) -> bool:
    return np.array_equal(target.slot, golden.slot) and np.array_equal(target.output, golden.output)


def _by_slot(tensors: Tensors, rows: Ints, call: Ints) -> Words:
    return mixed(call.astype(np.uint64), tensors.output[rows].astype(np.uint64), tensors.slot[rows])


def _by_place(tensors: Tensors, rows: Ints, call: Ints) -> Words:
    """By the position among the rows of the call and the same side of it (rows are sorted by
    call).
    """
    group = call * 2 + tensors.output[rows]
    order = np.argsort(group, kind="stable")
    starts = (
        np.flatnonzero(np.r_[True, np.diff(group[order]) != 0])
        if len(rows)
        else np.empty(0, dtype=np.int64)
    )
    sizes = np.diff(np.r_[starts, len(rows)])
    position = np.empty(len(rows), dtype=np.int64)
    position[order] = np.arange(len(rows)) - np.repeat(starts, sizes)
    return mixed(group.astype(np.uint64), position.astype(np.uint64))


def roundoffs(side: Side) -> tuple[Words, Floats, Bools]:
    """Unit roundoff of each element type by hash, sorted, and which are integers or bool."""
    dtypes = distinct(side.tensors.dtype).tolist()
    kinds = [find_dtype(side.words.get(value, "")) for value in dtypes]
    units = [_unit(kind) for kind in kinds]
    whole = [kind is not None and kind.kind in {"int", "uint", "bool"} for kind in kinds]
    return np.array(dtypes, dtype=np.uint64), np.array(units), np.array(whole, dtype=np.bool_)


def _unit(kind: DType | None) -> float:
    """Unit roundoff of an element type: 0 of integers, coarse guesses of types that nobody
    knows.
    """
    if kind is None:
        return 2.0**-8
    known = PRECISIONS.get(kind.name)
    return known.unit if known is not None else 2.0**-4 if kind.kind == "float" else 0.0


def coarser_products(
    target: Side,
    golden: Side,
    types: tuple[Types, Types],
    reduced: tuple[Bools, Bools],
) -> float:
    """Unit roundoff in which one side computes most of its products while the other computes them
    finer; 0 when both do alike.

    Under autocast, or after a change of the model's type, everything carries the rounding of the
    products, whatever its own type.
    """
    shares = [
        _product_types(side, known, short)
        for side, known, short in zip((target, golden), types, reduced, strict=True)
    ]
    units = sorted({*shares[0], *shares[1]}, reverse=True)
    for unit in units:
        finer = [sum(share for other, share in side.items() if other < unit) for side in shares]
        if abs(finer[0] - finer[1]) > 0.5:
            return unit
    return 0.0


def product_unit(side: Side, reduced: Bools) -> float:
    """The unit roundoff in which a side computes most of its products, or all its calls; reduced
    flags those that a device shortens.
    """
    shares = _product_types(side, roundoffs(side), reduced)
    return max(shares, key=lambda unit: shares[unit], default=0.0)


def _product_types(side: Side, types: Types, reduced: Bools) -> dict[float, float]:
    """Share of each unit roundoff among a side's products, of all its calls where it has no
    products; a call's coarsest output tells.
    """
    if not len(side.calls) or not len(side.tensors):
        return {}
    products = side.which(side.calls.op, lambda op: error_kind(op) == PRODUCT) & side.calls.leaf
    known, units, _ = types
    rows = np.flatnonzero(side.tensors.output)
    unit = np.zeros(len(side.calls))
    np.maximum.at(
        unit, side.tensors.call[rows], units[np.searchsorted(known, side.tensors.dtype[rows])]
    )
    unit[reduced] = REDUCED
    written = unit > 0
    chosen = written & products
    distinct_units, counts = np.unique(
        unit[chosen if chosen.any() else written], return_counts=True
    )
    return {
        float(roundoff): float(count) / int(counts.sum())
        for roundoff, count in zip(distinct_units, counts, strict=True)
    }


def _measured(
    sides: tuple[Side, Side],
    flows: tuple[Flow, Flow],
    types: tuple[Types, Types],
    left: Ints,
    right: Ints,
) -> Judged:
    """Error, status, roundoff, and whether only the order of elements differs, of each pair of
    rows.
    """
    maker = hash_maker(sides[1])
    foreign = foreign_hashes(sides[0], maker), foreign_hashes(sides[1], maker)

    def block(start: int) -> Judged:
        rows = left[start : start + _BLOCK], right[start : start + _BLOCK]
        hashed = (
            None
            if foreign[0] is None or foreign[1] is None
            else (foreign[0][rows[0]], foreign[1][rows[1]])
        )
        return _measured_block((sides[0].tensors, sides[1].tensors), flows, types, rows, hashed)

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        parts = list(pool.map(block, range(0, max(len(left), 1), _BLOCK)))
    error, status, roundoff, reordered = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    return error, status, roundoff, reordered


def _measured_block(
    sides: tuple[Tensors, Tensors],
    flows: tuple[Flow, Flow],
    types: tuple[Types, Types],
    rows: tuple[Ints, Ints],
    hashed: tuple[Words, Words] | None,
) -> Judged:
    """The same for some pairs: what is computed in between stays in the cache. hashed are hashes of
    a dump's own tool.
    """
    (mine, theirs), (left, right) = sides, (_span(rows[0]), _span(rows[1]))
    units, whole = [], []
    for side, span, (names, unit, integers) in zip(sides, (left, right), types, strict=True):
        at = np.searchsorted(names, side.dtype[span])
        units.append(unit[at])
        whole.append(integers[at])
    roundoff = np.where(np.minimum(*units) > 0, np.minimum(*units), np.maximum(*units))
    # A view without a digest is known by its base's, its shape and its strides: nothing that a
    # digest of its own could be held against.
    own = mine.digested[left] & theirs.digested[right]
    derived = (
        ~mine.digested[left] & ~theirs.digested[right] & (mine.stride[left] == theirs.stride[right])
    )
    both = flows[0].whole[left] & flows[1].whole[right] & (own | derived)
    alike = mine.dtype[left] == theirs.dtype[right]
    shaped = mine.shape[left] == theirs.shape[right]
    equal = alike & both & shaped & (flows[0].state[left] == flows[1].state[right])
    by_hash = np.zeros(len(both), dtype=np.bool_)
    if hashed is not None:
        by_hash = alike & ~both & (hashed[0] != 0) & (hashed[1] != 0)
        equal |= by_hash & (hashed[0] == hashed[1])
    bare = shaped & ~(both | by_hash | mine.digested[left] | theirs.digested[right])
    if bare.any():
        equal |= bare & _equal_statistics(mine, theirs, left, right)
    error, status, reordered = (
        np.zeros(len(both)),
        np.full(len(both), SAME, np.uint8),
        np.zeros(len(both), np.bool_),
    )
    rest = np.flatnonzero(~equal)
    if len(rest):
        known = (
            both[rest],
            ((both | by_hash) & alike)[rest],
            (whole[0] & whole[1])[rest],
            roundoff[rest],
        )
        error[rest], status[rest], reordered[rest] = _unequal(
            mine, theirs, rows[0][rest], rows[1][rest], known
        )
    return error, status, roundoff, reordered


def _span(rows: Ints) -> Places:
    """Rows that follow each other as a slice: columns are looked at where they lie, not copied."""
    follow = (
        len(rows) > 0
        and int(rows[-1]) - int(rows[0]) == len(rows) - 1
        and bool((rows[1:] > rows[:-1]).all())
    )
    return slice(int(rows[0]), int(rows[-1]) + 1) if follow else rows


@np.errstate(invalid="ignore")  # the difference of two infinities
def _equal_statistics(mine: Tensors, theirs: Tensors, left: Places, right: Places) -> Bools:
    """Which pairs have statistics on both sides, finite ones, and the same."""
    equal: Bools = mine.nan[left] >= 0
    for name in ("nan", "pos_inf", "neg_inf", "min_int", "max_int"):
        equal &= getattr(mine, name)[left] == getattr(theirs, name)[right]
    for name in ("l2norm", "mean", "min", "max"):
        equal &= getattr(mine, name)[left] - getattr(theirs, name)[right] == 0
    return equal


def _unequal(
    mine: Tensors,
    theirs: Tensors,
    left: Ints,
    right: Ints,
    known: tuple[Array, ...],
) -> tuple[Floats, Bytes, Bools]:
    """Error, status and order of pairs that are not known to be equal.

    known: whether both sides have digests, whether those or other hashes tell the pair apart,
    whether both are integers, roundoff.
    """
    both, told_apart, integers, roundoff = known
    counted = (mine.nan[left] >= 0) & (theirs.nan[right] >= 0)
    error = np.where(counted, statistic_error(mine, theirs, left, right), np.nan)
    # Statistics that one side's own tool took in float32 differ by its rounding from those taken of
    # the values.
    by_tools = counted & (mine.digested[left] != theirs.digested[right]) & (error <= TOOLS_ROUNDING)
    # So do those that one tool took in another order of memory; extremes never do.
    extremes = (mine.min[left] == theirs.min[right]) & (mine.max[left] == theirs.max[right])
    bare = counted & ~told_apart & ~mine.digested[left] & ~theirs.digested[right]
    by_tools |= bare & extremes & (error > 0) & (error <= TOOLS_ORDER)
    error = np.where(by_tools, 0.0, error)
    error = np.where(told_apart & (integers | np.isnan(error)), np.inf, error)
    reordered = (
        told_apart
        & ~integers
        & (error <= 1e-15)
        & extremes
        & ~_dominated(mine, left)
        & (mine.size[left] > 1)
        & (mine.size[left] <= _REORDERED_LIMIT)
    )
    # Another tool hashes memory that an in-place call may have written to meanwhile: statistics
    # decide then.
    reordered &= (mine.l2norm[left] > 0) & (roundoff > 2.0**-50) & both
    error = np.where(reordered, _spread(mine, left), error)
    status = np.where(np.isnan(error), UNKNOWN, np.where(error == 0, SAME, DIFFERS)).astype(
        np.uint8
    )
    status[(error == 0) & (told_apart | by_tools)] = WITHIN
    mismatched = (
        (mine.shape[left] != theirs.shape[right])
        & (mine.size[left] >= 0)
        & (theirs.size[right] >= 0)
    )
    status[mismatched] = SHAPE
    return np.where(mismatched, np.inf, error), status, reordered


def _dominated(tensors: Tensors, rows: Ints) -> Bools:
    """Tensors of which the norm and the mean tell of a mask's constant and of nothing beside it."""
    least, most = np.abs(tensors.min[rows]), np.abs(tensors.max[rows])
    high, low = np.fmax(least, most), np.fmin(least, most)
    return np.asarray((high > _MASK) & (low < 1e-3 * high))


def _spread(tensors: Tensors, rows: Ints) -> Floats:
    """The most that elements of a tensor may be apart, to the largest magnitude: how far off it is
    when they changed places.

    inf where some are not finite: their places are unknown.
    """
    least, most = tensors.min[rows], tensors.max[rows]
    bare = tensors.nan[rows] + tensors.pos_inf[rows] + tensors.neg_inf[rows] == 0
    return np.where(bare, _ratio(most - least, np.fmax(np.abs(least), np.abs(most))), np.inf)


def foreign_hashes(side: Side, maker: str) -> Words | None:
    """The hashes that a dump's own tool took of tensors, as numbers, 0 where there is none; None
    where they are not of this maker.
    """
    hashes = access_of(side.run).hashes
    if not maker or not hashes or maker != hash_maker(side):
        return None
    texts = [
        hashes.get((record.process, record.index, record.io, record.slot))
        for record in records(side.run, "tensors")
    ]
    codes = np.array(
        [0 if text is None else hash(text) & 0x7FFFFFFFFFFFFFFF | 1 for text in texts],
        dtype=np.uint64,
    )
    of_rows: Words = codes[side.tensors.row]
    return of_rows


def hash_maker(side: Side) -> str:
    """What made a dump's own hashes: those of two frameworks, and a CRC and an xor, are not
    comparable. Empty where there are none.
    """
    hashes = access_of(side.run).hashes
    if not hashes:
        return ""
    form = "xor" if any(text.startswith("0x") for text in hashes.values()) else "crc"
    return f"{side.run.info.format} {side.run.info.config.get('framework', '')} {form}"


def statistic_error(mine: Tensors, theirs: Tensors, left: Ints, right: Ints) -> Floats:
    """Relative error that the statistics of two tensors prove at least; inf where NaN or infinities
    are counted otherwise.
    """
    count = np.maximum(theirs.size[right], 1)
    norm = finite(theirs.l2norm[right])
    rms = norm / np.sqrt(count)
    reach = np.fmax(np.abs(theirs.min[right]), np.abs(theirs.max[right]))
    scale = np.fmax(reach, rms)
    wider = np.fmax(rms, finite(mine.l2norm[left]) / np.sqrt(count))
    parts = [
        _ratio(mine.l2norm[left] - theirs.l2norm[right], np.fmax(norm, mine.l2norm[left])),
        _ratio(
            mine.mean[left] - theirs.mean[right],
            np.where(wider > 0, wider, scale),
        ),
        _ratio(mine.min[left] - theirs.min[right], np.fmax(scale, np.abs(mine.min[left]))),
        _ratio(mine.max[left] - theirs.max[right], np.fmax(scale, np.abs(mine.max[left]))),
    ]
    error = parts[0]
    for part in parts[1:]:
        error = np.fmax(error, part)
    # Without any statistic nothing is known, unless no element is finite.
    ordinary = mine.size[left] - mine.nan[left] - mine.pos_inf[left] - mine.neg_inf[left]
    error = np.where(np.isnan(error) & (ordinary == 0), 0.0, error)
    other = (
        (mine.nan[left] != theirs.nan[right])
        | (mine.pos_inf[left] != theirs.pos_inf[right])
        | (mine.neg_inf[left] != theirs.neg_inf[right])
    )
    for low in ("min_int", "max_int"):
        a, b = getattr(mine, low)[left], getattr(theirs, low)[right]
        other |= (a != b) & (a != ABSENT) & (b != ABSENT)
    return np.where(other, np.inf, error)


def _ratio(difference: Floats, scale: Floats) -> Floats:
    """Difference by scale; 0 for no difference, NaN where one side is unknown, inf where the scale
    is 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(difference == 0, 0.0, np.abs(difference) / scale)
