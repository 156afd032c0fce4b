# SPDX-License-Identifier: Apache-2.0
"""Whether two programs are written differently, so that they are judged by what matters in them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.side.contents import (
    bears_identities,
    begins_backward,
    calls_back,
    tells_who_made_what,
)
from opscope.compare.side.lowering import worlds_apart
from opscope.compare.side.trained_tensors import computing
from opscope.operators.catalogue import family

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

_PHASES = {"forward", "backward", "optimizer"}


def written_otherwise(pairing: Pairing) -> bool:
    """Whether each side runs calls that compute and have no partner on the other, and one of them
    in its models, or in its steps, where one side writes its optimizer out; or whether they are of
    two worlds, of which that is so wherever they come here (pair_runs).
    """
    if pairing.between is not None:
        return False
    if worlds_apart(pairing.target, pairing.golden):
        return True
    sides = pairing.target, pairing.golden
    return all(map(tells_who_made_what, sides)) and _computes_otherwise(pairing)


def unread(pairing: Pairing) -> bool:
    """Whether two programs are written differently, and what the calls of one of them read was not
    recorded, so that nobody knows who made what.
    """
    recorded = all(side.run.info.coverage.versions for side in (pairing.target, pairing.golden))
    known = all(side.run.info.coverage.inputs for side in (pairing.target, pairing.golden))
    return pairing.between is None and recorded and not known and _computes_otherwise(pairing)


def _computes_otherwise(pairing: Pairing) -> bool:
    sides = (pairing.target, pairing.match.target), (pairing.golden, pairing.match.golden)
    steps = [side.in_phase("optimizer") for side, _ in sides]
    out = bool(steps[0].any() != steps[1].any())
    lonely = [_lonely(side, match) for side, match in sides]
    alone = [bool(flags[~step | out].any()) for flags, step in zip(lonely, steps, strict=True)]
    both = all(bool(flags.any()) for flags in lonely) or bool(cut_otherwise(pairing))
    return any(alone) and both


def written_in_part(pairing: Pairing) -> bool:
    """Whether one of two dumps has calls that compute and have no partner, which may stand for what
    the other has in operators that are not in dumps.
    """
    sides = (pairing.target, pairing.match.target), (pairing.golden, pairing.match.golden)
    dumps = all(tells_who_made_what(side) and not bears_identities(side) for side, _ in sides)
    return pairing.between is None and dumps and any(_lonely(*each).any() for each in sides)


def half_trained(pairing: Pairing) -> bool:
    """Whether one side alone shows a backward pass, as where the other's is compiled, of which a
    dump shows nothing.
    """
    shown = {bool(side.in_phase("backward").any()) for side in (pairing.target, pairing.golden)}
    return len(shown) > 1


def cut_otherwise(pairing: Pairing) -> set[Place]:
    """Ranks and steps in which both go back from losses, but from more of them on one side: of
    parts of a batch.
    """
    counted: list[Counter[Place]] = []
    for side, flow in zip((pairing.target, pairing.golden), pairing.flows, strict=True):
        backward = side.in_phase("backward")
        roots = side.which(side.calls.op, lambda op: family(op) == "ones_like")
        begins = begins_backward(side, flow.source_row)
        if bears_identities(side):
            begins = backward & roots if backward.any() else calls_back(side)
        rows = np.flatnonzero(begins)
        counted.append(
            Counter(
                zip(side.calls.rank[rows].tolist(), side.calls.step[rows].tolist(), strict=True)
            )
        )
    both = counted[0].keys() & counted[1].keys()
    return {place for place in both if counted[0][place] != counted[1][place]}


def _lonely(side: Side, match: Ints) -> Bools:
    alone = (match < 0) & side.calls.leaf
    if not alone.any():
        return alone
    in_phases = side.which(side.calls.phase, _PHASES.__contains__)
    lonely: Bools = alone & computing(side) & in_phases
    return lonely
