# SPDX-License-Identifier: Apache-2.0
"""Whether two programs are written differently, so that they are judged by what matters in them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.pair.common_steps import begin_late
from opscope.compare.side.call_rows import computing
from opscope.compare.side.contents import (
    bears_identities,
    begins_backward,
    calls_back,
    tells_who_made_what,
)
from opscope.compare.side.lowering import worlds_apart
from opscope.compare.side.records import call_records
from opscope.operators.catalogue import family

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

SAMPLED = 64  # calls that are asked where they stand
UNREAD = (
    "the two are written differently, and {} not recorded on both sides: where they part was not "
    "looked for"
)
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


def unread(pairing: Pairing) -> str | None:
    """Why it cannot be told who made what in two programs that are written differently: what calls
    of one of them read was not recorded, or some calls were not, or each has other levels. None
    where it can.
    """
    sides = pairing.target, pairing.golden
    known = [side.run.info.coverage for side in sides]
    if worlds_apart(*sides) or not all(map(bears_identities, sides)):
        return None
    if pairing.between is not None:
        return UNREAD.format("calls of one level were") if _two_files(pairing) else None
    if not all(coverage.reads for coverage in known):
        return UNREAD.format("what calls read was") if _computes_otherwise(pairing) else None
    every = all(coverage.every for coverage in known)
    return None if every or not _two_files(pairing) else UNREAD.format("some calls were")


def computes_alone(pairing: Pairing) -> bool:
    """Whether either side runs a call that computes and has no partner."""
    return any(flags.any() for flags in _lonely_calls(pairing))


def _computes_otherwise(pairing: Pairing) -> bool:
    steps = [side.in_phase("optimizer") for side in (pairing.target, pairing.golden)]
    out = bool(steps[0].any() != steps[1].any())
    lonely = _lonely_calls(pairing)
    alone = [bool(flags[~step | out].any()) for flags, step in zip(lonely, steps, strict=True)]
    if not any(alone):
        return False
    both = all(bool(flags.any()) for flags in lonely) or bool(cut_otherwise(pairing))
    return both or _in_part_of_two(pairing)


def _in_part_of_two(pairing: Pairing) -> bool:
    """Whether two programs were recorded in part, so that nobody knows what else one of them runs
    in the place of what it has alone.
    """
    sides = pairing.target, pairing.golden
    whole = all(side.run.info.coverage.passes for side in sides) and not begin_late(pairing)
    return not whole and _two_files(pairing)


def _two_files(pairing: Pairing) -> bool:
    """Whether the calls of either side stand in files of other names: not one program that was run
    twice, or changed in between.
    """
    mine, theirs = map(_files, (pairing.target, pairing.golden))
    return bool(mine) and bool(theirs) and not mine & theirs


def _files(side: Side) -> set[str]:
    """The names of files in which some calls of a side stand."""
    leaf = np.flatnonzero(side.calls.leaf)
    known = call_records(side, leaf[:: max(1, len(leaf) // SAMPLED)].tolist())
    places = (record.source for record in known.values() if record.source is not None)
    return {Path(place).name.rpartition(":")[0] for place in places}


def written_in_part(pairing: Pairing) -> bool:
    """Whether one of two dumps has calls that compute and have no partner, which may stand for what
    the other has in operators that are not in dumps.
    """
    sides = pairing.target, pairing.golden
    dumps = all(tells_who_made_what(side) and not bears_identities(side) for side in sides)
    return pairing.between is None and dumps and computes_alone(pairing)


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
        if not bears_identities(side):
            begins = begins_backward(side, flow.source_row)
        elif backward.any():
            begins = backward & side.which(side.calls.op, lambda op: family(op) == "ones_like")
        else:
            begins = calls_back(side)
        rows = np.flatnonzero(begins)
        counted.append(
            Counter(
                zip(side.calls.rank[rows].tolist(), side.calls.step[rows].tolist(), strict=True)
            )
        )
    both = counted[0].keys() & counted[1].keys()
    return {place for place in both if counted[0][place] != counted[1][place]}


def _lonely_calls(pairing: Pairing) -> list[Bools]:
    """Calls of either side that compute and have no partner."""
    sides = (pairing.target, pairing.match.target), (pairing.golden, pairing.match.golden)
    return [_lonely(side, match) for side, match in sides]


def _lonely(side: Side, match: Ints) -> Bools:
    alone = (match < 0) & side.calls.leaf
    if not alone.any():
        return alone
    in_phases = side.which(side.calls.phase, _PHASES.__contains__)
    lonely: Bools = alone & computing(side) & in_phases
    return lonely
