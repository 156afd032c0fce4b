# SPDX-License-Identifier: Apache-2.0
"""Initialisations that reach nothing: draws that load_state_dict overwrites, copies that are filled
anew, heads that nobody calls.

A call before the first module of its rank is dead where nothing reads what differs of its result,
or only calls that write over it, or dead ones. What nobody reads at all counts where it is an
initialisation (a draw, a fill, a copy, an operator in place) and modules are
called after it: any other such result may be what the program was run for. Nothing is dead where
modules were not recorded and what differs is read by nobody, nor in runs of other tools, which
leave readers out.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.pair.levels import within_modules
from opscope.compare.side.columns import API
from opscope.operators.catalogue import traits_of, works_in_place

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

MOST = 100_000  # calls before the first module, above which none is called an initialisation


def dead_calls(pairing: Pairing, number: int, unequal: Bools, overwritten: Bools) -> Bools:
    """Which calls of a side (0 the target, 1 golden) differ, or stand alone, and reach nothing.

    unequal: rows of the pairing that differ; overwritten: rows that their call fills whatever they
    held.
    """
    side, flow = (pairing.target, pairing.golden)[number], pairing.flows[number]
    rows, match = pairing.rows, (pairing.match.target, pairing.match.golden)[number]
    tensor_rows, owners = ((rows.target, rows.target_call), (rows.golden, rows.golden_call))[number]
    dead = np.zeros(len(side.calls), dtype=np.bool_)
    versions = all(side.run.info.coverage.versions for side in (pairing.target, pairing.golden))
    if pairing.between is not None or not versions or not len(side.calls):
        return dead
    differing = np.zeros(len(side.calls), dtype=np.bool_)
    here = tensor_rows >= 0
    parted = here & (unequal | ((rows.target < 0) | (rows.golden < 0)))
    differing[owners[parted & rows.output]] = True
    used = _first_use(side)
    candidates = np.flatnonzero(
        (differing | (match < 0)) & side.calls.leaf & (np.arange(len(used)) < used)
    )
    if not len(candidates) or len(candidates) > MOST:
        return dead
    reads = np.flatnonzero(
        parted & ~rows.output & ~overwritten & side.calls.leaf[np.maximum(owners, 0)]
    )
    producers = flow.producer[tensor_rows[reads]]
    writes = np.zeros(len(side.calls), dtype=np.bool_)
    writes[side.tensors.call[side.tensors.output]] = True
    follows = differing | ~writes  # what a call without a result makes of it nobody knows
    live = _live(
        candidates, reads=(producers, owners[reads]), follows=follows, endings=_endings(side, used)
    )
    dead[candidates] = ~live[candidates]
    return dead


def _live(
    candidates: Ints,
    *,
    reads: tuple[Ints, Ints],
    follows: Bools,
    endings: Bools,
) -> Bools:
    """Which calls but dead candidates: a candidate lives by a reader that lives and differs, or as
    the end of what is no initialisation.
    """
    live = np.ones(len(follows), dtype=np.bool_)
    chosen = np.isin(reads[0], candidates)
    readers: dict[int, list[int]] = defaultdict(list)
    for producer, reader in zip(reads[0][chosen].tolist(), reads[1][chosen].tolist(), strict=True):
        readers[producer].append(reader)
    for call in candidates.tolist()[::-1]:
        read = readers.get(call)
        live[call] = (
            not endings[call]
            if read is None
            else any(live[reader] and follows[reader] for reader in read)
        )
    return live


def _first_use(side: Side) -> Ints:
    """For each call the first of its rank that a module encloses or that is no forward call; the
    number of calls where there is none.
    """
    calls = side.calls
    forward = side.in_phase("forward")
    used = within_modules(side) | (~calls.leaf & (calls.level != API)) | ~forward
    using = np.flatnonzero(used)
    first_use = np.full(len(calls), len(calls), dtype=np.int64)
    ranks, first = np.unique(calls.rank[using], return_index=True)
    for rank, at in zip(ranks.tolist(), using[first].tolist(), strict=True):
        first_use[calls.rank == rank] = at
    return first_use


def _endings(side: Side, used: Ints) -> Bools:
    """Calls whose result is an initialisation where nobody reads it: modules are called in their
    rank.
    """

    def initialises(op: str) -> bool:
        known = traits_of(op)
        return works_in_place(op) or known.random or bool(known.overwrites) or known.idle

    enclosed = np.isin(side.calls.rank, np.unique(side.calls.rank[~side.calls.leaf]))
    endings: Bools = side.which(side.calls.op, initialises) & enclosed & (used < len(used))
    return endings
