# SPDX-License-Identifier: Apache-2.0
"""Which call made the difference, and which only received it.

A call is an origin when its inputs agree and its output does not, by more than its own rounding and
what its condition makes of the error its inputs carry. A tensor that differs although no recorded
call produced it makes its first reader the origin. A call that only one side has is an origin when
values part at it. Everything whose inputs come from an origin is a receiver, or an amplifier when
its output is worse than its inputs explain. What is left is noise. docs/compare.md has the rules
with examples.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.pair.pairing import Pairing
from opscope.compare.pair.tensors import DIFFERS, SAME, SHAPE, UNKNOWN, WITHIN, Rows
from opscope.compare.side.columns import OPERATOR, Side
from opscope.compare.side.conditions import (
    SLACK,
    STATISTICAL,
    Norms,
    conditions,
    error_kind,
    error_kind_of_result,
)
from opscope.operators.catalogue import traits_of
from opscope.run.hashes import distinct
from opscope.run.keys import NONE, place_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.arrays import Bools, Floats, Ints


_BLOCK = 1 << 16  # rows that are judged at once


class Measures(msgspec.Struct, frozen=True):
    """What is known of each call of the target; calls without a partner keep the neutral values.

    agree: all inputs are known to be equal; unread: some input is not known; exceeds: an output is
    further off than allowed;
    touched: some tensor of it is not equal. allowed: per row, for outputs.
    """

    in_error: Floats
    out_error: Floats
    agree: Bools
    unread: Bools
    differs: Bools
    exceeds: Bools
    allowed: Floats
    own: Floats


def measure(pairing: Pairing) -> Measures:
    """Errors of all matched calls' inputs and outputs, and what is allowed; vector operations
    only.
    """
    rows, count = pairing.rows, len(pairing.target.calls)
    both = (rows.target >= 0) & (rows.golden >= 0)
    read, written = np.flatnonzero(both & ~rows.output), np.flatnonzero(both & rows.output)
    in_error, out_error = np.zeros(count), np.zeros(count)
    agree, unread = pairing.match.target >= 0, np.zeros(count, dtype=np.bool_)
    for errors, compared in ((in_error, read), (out_error, written)):
        unequal = compared[rows.error[compared] != 0]
        np.fmax.at(errors, rows.target_call[unequal], rows.error[unequal])
    agree[rows.target_call[read[rows.status[read] != SAME]]] = False
    alone = np.flatnonzero(~both & ~rows.output & (rows.target_call >= 0))
    agree[rows.target_call[alone]] = False
    unread[rows.target_call[read[rows.status[read] == UNKNOWN]]] = True
    readers = np.zeros(count, dtype=np.bool_)
    readers[rows.target_call[read]] = True
    if not pairing.target.run.info.coverage.inputs or pairing.between is not None:
        unread |= ~readers
        agree &= readers
    differs = np.zeros(count, dtype=np.bool_)
    differs[
        rows.target_call[
            written[(rows.status[written] != SAME) & (rows.status[written] != UNKNOWN)]
        ]
    ] = True
    _with_forward(pairing.target, in_error, agree, (out_error, differs))
    allowed, own = _allowed(pairing, in_error)
    burst = _bursts(pairing, in_error)[written]
    over = written[(rows.error[written] > allowed[written]) | burst]
    exceeds = np.zeros(count, dtype=np.bool_)
    exceeds[rows.target_call[over]] = True
    return Measures(in_error, out_error, agree, unread, differs, exceeds, allowed, own)


def _bursts(pairing: Pairing, in_error: Floats) -> Bools:
    """Rows that are not finite on one side alone, of inputs near golden's, however steep the call
    is: on ranks of which a parameter, a gradient or what the program reads is not finite then. What
    a mask removes is nobody's.
    """
    rows, target = pairing.rows, pairing.target
    bursts = np.isinf(rows.error) & (rows.target_call >= 0)
    chosen = np.flatnonzero(bursts)
    calls = rows.target_call[chosen]
    leaves = target.told(target.calls.op[calls], lambda op: traits_of(op).leaves, np.bool_)
    lasting = leaves | (target.tensors.named[rows.target[chosen]] != 0)
    reached = distinct(target.calls.rank[calls[lasting]])
    bursts[chosen] = np.isfinite(in_error[calls]) & np.isin(target.calls.rank[calls], reached)
    return bursts


def _with_forward(
    side: Side,
    in_error: Floats,
    agree: Bools,
    outputs: tuple[Floats, Bools],
) -> None:
    """The gradient of an API or module also depends on what its forward call read and wrote, which
    such dumps do not list with it.
    """
    forward = forward_calls(side)
    rows = np.flatnonzero(forward >= 0)
    out_error, differs = outputs
    before = forward[rows]
    in_error[rows] = np.fmax(in_error[rows], np.fmax(in_error[before], out_error[before]))
    agree[rows] &= agree[before] & ~differs[before]


def forward_calls(side: Side) -> Ints:
    """For each backward call of an API or module its forward call, NONE for all others."""
    calls = side.calls
    forward = np.full(len(calls), NONE, dtype=np.int64)
    rows = np.flatnonzero((calls.forward >= 0) & (calls.level != OPERATOR))
    if len(rows):
        keys = (calls.process[rows] << 40) | calls.forward[rows]
        forward[rows] = place_of(keys, calls.key)
    return forward


def _allowed(pairing: Pairing, in_error: Floats) -> tuple[Floats, Floats]:
    """What each output row may be off, and which part of it is the call's own rounding."""
    allowed, own = np.full(len(pairing.rows), np.nan), np.full(len(pairing.rows), np.nan)
    kind = error_kind if pairing.between is None else error_kind_of_result
    kinds = pairing.target.told(pairing.target.calls.op, kind, np.int8)

    def block(part: slice) -> None:
        allowed[part], own[part] = _allowed_block(pairing, kinds, in_error, part)

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        list(pool.map(block, _blocks(pairing.rows.target_call)))
    return allowed, own


def _blocks(calls: Ints) -> list[slice]:
    """Rows with a call in blocks that cut none; rows are in the order of calls, those without one
    come last.
    """
    count = int(np.count_nonzero(calls >= 0))
    cuts = distinct(np.searchsorted(calls[:count], calls[_BLOCK:count:_BLOCK])).tolist()
    return [
        slice(start, stop)
        for start, stop in pairwise([0, *(cut for cut in cuts if cut), count])
        if start < stop
    ]


def _allowed_block(
    pairing: Pairing, kinds: NDArray[np.int8], in_error: Floats, part: slice
) -> tuple[Floats, Floats]:
    """The same for the rows of some calls: what is computed in between stays in the cache."""
    rows, golden = pairing.rows, pairing.golden.tensors
    first = int(rows.target_call[part.start])
    here = slice(first, int(rows.target_call[part.stop - 1]) + 1)
    call, golden_rows, roundoff = (
        rows.target_call[part] - first,
        rows.golden[part],
        rows.roundoff[part],
    )
    both, output = (rows.target[part] >= 0) & (golden_rows >= 0), rows.output[part]
    read, written = np.flatnonzero(both & ~output), np.flatnonzero(both & output)
    norms = Norms(here.stop - first)
    at = golden_rows[read]
    reach = np.fmax(np.abs(golden.min[at]), np.abs(golden.max[at]))
    norms.add(call[read], golden.l2norm[at], golden.size[at], reach, golden.mean[at])
    calls, at = call[written], golden_rows[written]
    made = pairing.target.tensors.l2norm[rows.target[part][written]]
    norm = np.where(golden.l2norm[at] == 0, made, golden.l2norm[at])  # which errors are relative to
    condition, rounding = conditions(kinds[here], norms, calls, norm, golden.size[at])
    coarse = np.zeros(here.stop - first)
    np.fmax.at(coarse, call[read], roundoff[read])
    # what is counted, compared or cut off to whole numbers jumps however little its numbers differ
    condition[(roundoff[written] == 0) & (coarse[calls] > 0)] = np.inf
    unit = np.fmax(roundoff[written], np.where(roundoff[written] > 0, coarse[calls], 0.0))
    carried = in_error[here][calls]
    guessed = np.zeros(here.stop - first, dtype=np.bool_)
    guessed[call[read[rows.least[part][read]]]] = True
    slack = np.where(guessed[calls], SLACK * STATISTICAL, SLACK)
    with np.errstate(invalid="ignore", over="ignore"):
        received = np.where(carried > 0, slack * condition * carried, 0.0)
    allowed, own = np.full(len(call), np.nan), np.full(len(call), np.nan)
    own[written] = rounding * unit
    allowed[written] = own[written] + received
    return allowed, own


def graded(pairing: Pairing, measures: Measures, first: dict[int, int]) -> Rows:
    """Rows with their allowance, and what is no consequence of an origin called within tolerance.

    first: for each rank the target call at which its first origin stands.
    """
    rows = pairing.rows
    status = rows.status.copy()
    ranks = (
        pairing.target.calls.rank[np.maximum(rows.target_call, 0)]
        if len(pairing.target.calls)
        else np.zeros(len(rows), dtype=np.int64)
    )
    after = np.zeros(len(rows), dtype=np.bool_)
    for rank, call in first.items():
        after |= (ranks == rank) & (rows.target_call >= call)
    tiny = rows.error <= np.fmax(measures.own, 16 * rows.roundoff)
    dead = np.isin(rows.target_call, list(pairing.dead[0]))
    noise = (status == DIFFERS) & ((~after & ~dead) | tiny)
    status[noise] = WITHIN
    status[(rows.status == SHAPE)] = SHAPE
    return msgspec.structs.replace(rows, status=status, allowed=measures.allowed)
