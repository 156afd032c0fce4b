# SPDX-License-Identifier: Apache-2.0
"""The calls of either side that a finding names beside the two at which programs part."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.start_pairs import one_family
from opscope.compare.pair.arguments import difference_of
from opscope.compare.side.call_rows import parameters_of
from opscope.run.hashes import mixed
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.compare.cause.start_pairs import StartPairs
    from opscope.compare.cause.walks import Walk
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side


def regions_of(
    walks: list[Walk], starts: list[list[int]], chosen: tuple[int, int], pairs: StartPairs
) -> list[tuple[int, ...]]:
    """The calls of either side's region, of the starts that were chosen; where these read nothing
    in common, with the first calls that compute with what the other side's start reads.
    """
    mine, theirs = chosen
    both = mine >= 0 and theirs >= 0
    read = pairs.shared_names(
        *(
            walk.head(start) if start >= 0 else set[int]()
            for walk, start in zip(walks, chosen, strict=True)
        )
    )
    beyond = not (both and pairs.comparable(mine, theirs))
    regions = [
        walk.region(start, names, some, beyond=beyond) if start >= 0 else ()
        for walk, start, names, some in zip(walks, chosen, read, starts, strict=True)
    ]
    if both and not pairs.shared(mine, theirs)[0]:
        readers = pairs.readers_of(0, theirs), pairs.readers_of(1, mine)
        more = [
            tuple(call for call in also if call not in region)
            for region, also in zip(regions, readers, strict=True)
        ]
        regions = with_calls(regions, *more)
    return regions


def with_calls(regions: list[tuple[int, ...]], *calls: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Regions with calls more of either side, behind their starts."""
    return [(some[0], *more, *some[1:]) for some, more in zip(regions, calls, strict=True)]


def updated_alike(pairing: Pairing, starts: tuple[int, int], number: int) -> tuple[int, ...]:
    """The first call by which a side does to another parameter in the step what the other's start
    does to one: this one it leaves out, as of a group that decays. None where its own start does
    the same.
    """
    sides = pairing.target, pairing.golden
    side = sides[number]
    if not parameters_of(sides[1 - number], starts[1 - number]):
        return ()
    calls, start = side.calls, starts[number]
    if _alike(pairing, starts, number, start):
        return ()
    step = np.flatnonzero(calls.leaf & (calls.step == calls.step[start]))
    step = step[(calls.rank[step] == calls.rank[start]) & (step > _gone_back(side, start))]
    _, first = np.unique(mixed(calls.op[step], calls.args[step]), return_index=True)
    doing = (
        call
        for call in step[np.sort(first)].tolist()
        if parameters_of(side, call) and _alike(pairing, starts, number, call)
    )
    return tuple(islice(doing, 1))


def _alike(pairing: Pairing, starts: tuple[int, int], number: int, call: int) -> bool:
    """Whether a call of a side is of the operator of the other's start, with its arguments."""
    mine, theirs = (call, starts[1]) if number == 0 else (starts[0], call)
    return one_family(pairing, mine, theirs) and not difference_of(pairing, mine, theirs)


def _gone_back(side: Side, call: int) -> int:
    """The last call of a backward pass before a call, NONE where there is none."""
    passes = np.flatnonzero(side.in_phase("backward")[:call])
    return int(passes[-1]) if len(passes) else NONE
