# SPDX-License-Identifier: Apache-2.0
"""The tensors of matched calls side by side, and how far they are apart by what the tables say of them.

The error of a pair is relative: the largest of the differences of l2 norm, mean (to the root mean square), minimum and maximum
(to the largest magnitude). Equal digests are error 0; other integers, another shape, another place of NaN or infinities are
error inf; what nobody measured is NaN. One pass of vector operations over all rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.analysis.compare_flow import Flow
from opscope.analysis.compare_kinds import PRODUCT, kind_of
from opscope.analysis.compare_tables import ABSENT, NONE, Side, Tensors
from opscope.analysis.hashes import mixed
from opscope.run.dtypes import find_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.analysis.align import Match

SAME, WITHIN, DIFFERS, UNKNOWN, SHAPE, TARGET_ONLY, GOLDEN_ONLY = range(7)
STATUS_WORDS = ("same", "within tolerance", "differs", "not measured", "shape differs", "only in target", "only in golden")
_ROUNDOFF = {
    "float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53, "complex64": 2.0**-24,
    "complex128": 2.0**-53, "complex32": 2.0**-11, "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3, "hifloat8": 2.0**-3,
}  # fmt: skip
TOOLS_ROUNDING = 1e-5  # of norms and means that a dump's own tool took in float32
_REORDERED_LIMIT = 1_000_000  # larger tensors hide one changed bit from their mean


class Rows(msgspec.Struct, frozen=True):
    """One row for each pair of tensors and each tensor without a partner; target and golden are places in Side.tensors or NONE.

    error is relative, NaN where unknown; status is one of the codes above; roundoff is the finer of the two types' (0 for integers),
    or that of the products where one side computes most of them in a coarser type; allowed is what the judgement lets pass.
    least: the error is what statistics prove at least, and may be larger.
    """

    target: NDArray[np.int64]
    golden: NDArray[np.int64]
    target_call: NDArray[np.int64]
    golden_call: NDArray[np.int64]
    output: NDArray[np.bool_]
    error: NDArray[np.float64]
    allowed: NDArray[np.float64]
    status: NDArray[np.uint8]
    roundoff: NDArray[np.float64]
    reordered: NDArray[np.bool_]
    least: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.target)


def pair_rows(target: Side, golden: Side, flows: tuple[Flow, Flow], match: Match) -> Rows:
    """Pair the tensors of matched calls, by slot, then by place; everything else stands alone. Unread pairs have status UNKNOWN."""
    left, right = _paired(target.tensors, golden.tensors, match)
    alone_t, alone_g = _without(len(target.tensors), left), _without(len(golden.tensors), right)
    mine = np.concatenate([left, alone_t, np.full(len(alone_g), NONE)])
    theirs = np.concatenate([right, np.full(len(alone_t), NONE), alone_g])
    count = len(mine)
    error = np.full(count, np.nan)
    status = np.full(count, UNKNOWN, dtype=np.uint8)
    status[len(left) : len(left) + len(alone_t)] = TARGET_ONLY
    status[len(left) + len(alone_t) :] = GOLDEN_ONLY
    roundoff, reordered = np.zeros(count), np.zeros(count, dtype=np.bool_)
    coarse = coarser_products(target, golden)
    if len(left):
        measured = _measured(target, golden, flows, left, right)
        error[: len(left)], status[: len(left)], roundoff[: len(left)], reordered[: len(left)] = measured
    roundoff = np.where(roundoff > 0, np.maximum(roundoff, coarse), roundoff)
    calls = [_owners(side.tensors, rows) for side, rows in ((target, mine), (golden, theirs))]
    call_t = np.where(calls[0] >= 0, calls[0], _partner(match.golden, calls[1]))
    call_g = np.where(calls[1] >= 0, calls[1], _partner(match.target, calls[0]))
    output = np.zeros(count, dtype=np.bool_)
    output[mine >= 0] = target.tensors.output[mine[mine >= 0]]
    output[mine < 0] = golden.tensors.output[theirs[mine < 0]]
    placed = np.where(call_t >= 0, call_t, np.iinfo(np.int64).max)
    order: Any = slice(None)
    if np.any(placed[1:] < placed[:-1]):
        order = np.lexsort((np.arange(count), call_g, placed))
    return Rows(
        mine[order], theirs[order], call_t[order], call_g[order], output[order], error[order], np.full(count, np.nan), status[order],
        roundoff[order], reordered[order], (error[order] > 0) & np.isfinite(error[order]),
    )  # fmt: skip


def _without(count: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    free = np.ones(count, dtype=np.bool_)
    free[rows] = False
    return np.flatnonzero(free)


def _owners(tensors: Tensors, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    owners = np.full(len(rows), NONE, dtype=np.int64)
    owners[rows >= 0] = tensors.call[rows[rows >= 0]]
    return owners


def _partner(match: NDArray[np.int64], calls: NDArray[np.int64]) -> NDArray[np.int64]:
    found = np.full(len(calls), NONE, dtype=np.int64)
    found[calls >= 0] = match[calls[calls >= 0]]
    return found


def _paired(target: Tensors, golden: Tensors, match: Match) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of matched calls that belong together: the same slot, then what is left by its place among inputs or outputs."""
    left, right = _laid_out_alike(target, golden, match)
    lefts, rights = [left], [right]
    for key in (_by_slot, _by_place):
        mine = _waiting(target, match.target, lefts)
        theirs = _waiting(golden, match.golden, rights)
        keys = key(target, mine, target.call[mine]), key(golden, theirs, match.golden[golden.call[theirs]])
        _, at, other = np.intersect1d(*keys, return_indices=True)
        lefts.append(mine[at])
        rights.append(theirs[other])
    return np.concatenate(lefts), np.concatenate(rights)


def _waiting(tensors: Tensors, match: NDArray[np.int64], taken: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Rows of matched calls that have no partner yet."""
    free = match[tensors.call] >= 0 if len(match) else np.zeros(len(tensors), dtype=np.bool_)
    for rows in taken:
        free[rows] = False
    return np.flatnonzero(free)


def _laid_out_alike(target: Tensors, golden: Tensors, match: Match) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of matched calls whose slots stand in the same order on both sides, without sorting anything."""
    pairs = match.pairs
    starts, sizes = [], []
    for tensors, calls in ((target, pairs[:, 0]), (golden, pairs[:, 1])):
        first = np.searchsorted(tensors.call, calls)
        starts.append(first)
        sizes.append(np.searchsorted(tensors.call, calls, side="right") - first)
    alike = np.flatnonzero((sizes[0] == sizes[1]) & (sizes[0] > 0))
    size = sizes[0][alike]
    inner = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    left, right = (np.repeat(start[alike], size) + inner for start in starts)
    other = (target.slot[left] != golden.slot[right]) | (target.output[left] != golden.output[right])
    if not other.any():
        return left, right
    group = np.repeat(np.arange(len(alike)), size)
    odd = np.zeros(len(alike), dtype=np.bool_)
    odd[group[other]] = True
    kept = ~odd[group]
    return left[kept], right[kept]


def _by_slot(tensors: Tensors, rows: NDArray[np.int64], call: NDArray[np.int64]) -> NDArray[np.uint64]:
    return mixed(call.astype(np.uint64), tensors.output[rows].astype(np.uint64), tensors.slot[rows])


def _by_place(tensors: Tensors, rows: NDArray[np.int64], call: NDArray[np.int64]) -> NDArray[np.uint64]:
    """By the position among the rows of the call and the same side of it (rows are sorted by call)."""
    group = call * 2 + tensors.output[rows]
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(group[order]) != 0]) if len(rows) else np.empty(0, dtype=np.int64)
    sizes = np.diff(np.r_[starts, len(rows)])
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.arange(len(rows)) - np.repeat(starts, sizes)
    return mixed(group.astype(np.uint64), place.astype(np.uint64))


def roundoffs(side: Side) -> tuple[NDArray[np.uint64], NDArray[np.float64], NDArray[np.bool_]]:
    """Unit roundoff of each element type by hash, sorted, and which are integers or bool."""
    found = sorted(np.unique(side.tensors.dtype).tolist())
    kinds = [find_dtype(side.words.get(value, "")) for value in found]
    units = [_ROUNDOFF.get(kind.name, 2.0**-4 if kind.kind == "float" else 0.0) if kind is not None else 2.0**-8 for kind in kinds]
    whole = [kind is not None and kind.kind in {"int", "uint", "bool"} for kind in kinds]
    return np.array(found, dtype=np.uint64), np.array(units), np.array(whole, dtype=np.bool_)


def coarser_products(target: Side, golden: Side) -> float:
    """Unit roundoff in which one side computes most of its products while the other computes them finer; 0 when both do alike.

    Under autocast, or after a change of the model's type, everything carries the rounding of the products, whatever its own type.
    """
    shares = [_product_types(side) for side in (target, golden)]
    units = sorted({*shares[0], *shares[1]}, reverse=True)
    for unit in units:
        finer = [sum(share for other, share in side.items() if other < unit) for side in shares]
        if abs(finer[0] - finer[1]) > 0.5:
            return unit
    return 0.0


def _product_types(side: Side) -> dict[float, float]:
    """Share of each unit roundoff among the outputs of a side's products, of all its calls where it has no products."""
    names, inverse = np.unique(side.calls.op, return_inverse=True)
    if not len(names) or not len(side.tensors):
        return {}
    products = np.array([kind_of(text) == PRODUCT for text in side.texts(names)], dtype=np.bool_)[inverse] & side.calls.leaf
    types, units, _ = roundoffs(side)
    unit = units[np.searchsorted(types, side.tensors.dtype)]
    written = side.tensors.output & (unit > 0)
    chosen = written & products[side.tensors.call]
    found, counts = np.unique(unit[chosen if chosen.any() else written], return_counts=True)
    return {float(one): float(count) / int(counts.sum()) for one, count in zip(found, counts, strict=True)}


def _measured(
    target: Side, golden: Side, flows: tuple[Flow, Flow], left: NDArray[np.int64], right: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.uint8], NDArray[np.float64], NDArray[np.bool_]]:
    mine, theirs = target.tensors, golden.tensors
    units, whole = [], []
    for side, rows in ((target, left), (golden, right)):
        names, unit, integers = roundoffs(side)
        at = np.searchsorted(names, side.tensors.dtype[rows])
        units.append(unit[at])
        whole.append(integers[at])
    roundoff = np.where(np.minimum(*units) > 0, np.minimum(*units), np.maximum(*units))
    alike = mine.dtype[left] == theirs.dtype[right]
    # A view without a digest is known by its base's, its shape and its strides: nothing that a digest of its own could be held against.
    own = mine.digested[left] & theirs.digested[right]
    derived = ~mine.digested[left] & ~theirs.digested[right] & (mine.stride[left] == theirs.stride[right])
    both = flows[0].whole[left] & flows[1].whole[right] & (own | derived)
    equal = alike & both & (flows[0].state[left] == flows[1].state[right])
    equal &= mine.shape[left] == theirs.shape[right]
    known = (mine.nan[left] >= 0) & (theirs.nan[right] >= 0)
    error = np.where(equal, 0.0, np.nan)
    error = np.where(known & ~equal, statistic_error(mine, theirs, left, right), error)
    # Statistics that one side's own tool took in float32 differ by its rounding from those taken of the values.
    by_tools = known & ~equal & (mine.digested[left] != theirs.digested[right]) & (error <= TOOLS_ROUNDING)
    error = np.where(by_tools, 0.0, error)
    maker = hash_maker(golden)
    hashed = foreign_hashes(target, left, maker), foreign_hashes(golden, right, maker)
    told = alike & ~both & (hashed[0] != 0) & (hashed[1] != 0)
    equal |= told & (hashed[0] == hashed[1])
    error = np.where(equal, 0.0, error)
    told_apart = (both | told) & alike & ~equal
    integers = whole[0] & whole[1]
    error = np.where(told_apart & (integers | np.isnan(error)), np.inf, error)
    reordered = told_apart & ~integers & (error <= 1e-15) & (mine.size[left] > 1) & (mine.size[left] <= _REORDERED_LIMIT)
    # Another tool hashes memory that an in-place call may have written to meanwhile: statistics decide then.
    reordered &= (mine.l2norm[left] > 0) & (roundoff > 2.0**-50) & both
    error = np.where(reordered, np.inf, error)
    status = np.where(np.isnan(error), UNKNOWN, np.where(error == 0, SAME, DIFFERS)).astype(np.uint8)
    status[(error == 0) & ~equal & (told_apart | by_tools)] = WITHIN
    mismatched = (mine.shape[left] != theirs.shape[right]) & (mine.size[left] >= 0) & (theirs.size[right] >= 0)
    status[mismatched] = SHAPE
    error = np.where(mismatched, np.inf, error)
    return error, status, roundoff, reordered


def foreign_hashes(side: Side, rows: NDArray[np.int64], maker: str) -> NDArray[np.uint64]:
    """The hashes that a dump's own tool took of tensors, as numbers; 0 where there is none, or it is not of this maker."""
    hashes = getattr(side.run, "hashes", None)
    if not maker or not hashes or maker != hash_maker(side):
        return np.zeros(len(rows), dtype=np.uint64)
    records = side.run.rows("tensors")  # type: ignore[attr-defined]
    found = [hashes.get((record.process, record.index, record.io, record.slot)) for record in records]
    codes = np.array([0 if text is None else hash(text) & 0x7FFFFFFFFFFFFFFF | 1 for text in found], dtype=np.uint64)
    return codes[side.tensors.row[rows]]


def hash_maker(side: Side) -> str:
    """What made a dump's own hashes: those of two frameworks, and a CRC and an xor, are not comparable. Empty where there are none."""
    hashes = getattr(side.run, "hashes", None)
    if not hashes:
        return ""
    form = "xor" if any(text.startswith("0x") for text in hashes.values()) else "crc"
    return f"{side.run.info.format} {side.run.info.config.get('framework', '')} {form}"


def statistic_error(mine: Tensors, theirs: Tensors, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
    """Relative error that the statistics of two tensors prove at least; inf where NaN or infinities are counted otherwise."""
    count = np.maximum(theirs.size[right], 1)
    norm = np.nan_to_num(theirs.l2norm[right])
    rms = norm / np.sqrt(count)
    reach = np.fmax(np.abs(theirs.min[right]), np.abs(theirs.max[right]))
    scale = np.fmax(reach, rms)
    parts = [
        _ratio(mine.l2norm[left] - theirs.l2norm[right], np.fmax(norm, mine.l2norm[left])),
        _ratio(mine.mean[left] - theirs.mean[right], np.where(rms > 0, np.fmax(rms, mine.l2norm[left] / np.sqrt(count)), scale)),
        _ratio(mine.min[left] - theirs.min[right], np.fmax(scale, np.abs(mine.min[left]))),
        _ratio(mine.max[left] - theirs.max[right], np.fmax(scale, np.abs(mine.max[left]))),
    ]
    error = np.zeros(len(left))
    for part in parts:
        error = np.fmax(error, part)
    other = (
        (mine.nan[left] != theirs.nan[right])
        | (mine.pos_inf[left] != theirs.pos_inf[right])
        | (mine.neg_inf[left] != theirs.neg_inf[right])
    )
    for low in ("min_int", "max_int"):
        a, b = getattr(mine, low)[left], getattr(theirs, low)[right]
        other |= (a != b) & (a != ABSENT) & (b != ABSENT)
    return np.where(other, np.inf, error)


def _ratio(difference: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Difference by scale; 0 for no difference, NaN where one side is unknown, inf where the scale is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(difference == 0, 0.0, np.abs(difference) / scale)
