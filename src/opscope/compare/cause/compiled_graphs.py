# SPDX-License-Identifier: Apache-2.0
"""Graphs of torch.compile beside the same program without it: what goes into one agrees, and what
comes out agrees with nothing that the operators made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.causes import Cause
from opscope.compare.cause.inside_graphs import inside
from opscope.compare.cause.parted_calls import first_parted
from opscope.compare.cause.read_after_graphs import read_otherwise
from opscope.compare.pair.unpaired import half_compiled
from opscope.compare.side.columns import OPERATOR
from opscope.operators.catalogue import traits_of
from opscope.run.hashes import mixed

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side


def with_graphs(pairing: Pairing, causes: list[Cause]) -> list[Cause]:
    """The causes, from the first graph on in which a target that was compiled parts from golden,
    which was not: that graph, in place of graphs before it and of all that comes after.

    Graphs are not judged where golden draws random numbers that the target does not: compiled code
    draws others. Nor are those that run operators: these are compared as any.
    """
    if pairing.between is not None or not half_compiled(pairing) or _draws_inside(pairing):
        return causes
    side = pairing.target
    graphs = side.graphs()
    around = side.enclosing(graphs)
    asked = graphs & ~_told_whole(side, graphs, around)
    call = first_parted(pairing, asked, otherwise=read_otherwise(pairing, asked, around))
    if call is None:
        return causes
    before = [cause for cause in causes if 0 <= cause.target < call and not graphs[cause.target]]
    return [*before, inside(pairing, call)]


def _told_whole(side: Side, graphs: Bools, calls_around: Ints) -> Bools:
    """Graphs of which recorded calls inside made every result, of nothing but what went into the
    graph and what such calls made.
    """
    calls, tensors = side.calls, side.tensors
    around = calls_around[tensors.call]
    own, inner = graphs[tensors.call], around >= 0
    graph = np.where(own, tensors.call, around)
    state = mixed(graph.astype(np.uint64), tensors.version.astype(np.uint64))
    operators = inner & (calls.level[tensors.call] == OPERATOR)
    made, given = operators & tensors.output, own & ~tensors.output
    known = np.unique(state[made | given])
    read = np.unique(state[(made & (tensors.nan >= 0)) | given])
    untold = own & tensors.output & ~np.isin(state, read)
    untold |= operators & ~tensors.output & ~np.isin(state, known)
    whole = np.zeros(len(calls), dtype=np.bool_)
    whole[around[made]] = True
    whole[graph[untold]] = False
    return whole


def _draws_inside(pairing: Pairing) -> bool:
    side = pairing.golden
    random = side.which(side.calls.op, lambda op: traits_of(op).random)
    return bool((random & side.calls.leaf & (pairing.match.golden < 0)).any())
