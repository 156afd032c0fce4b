# SPDX-License-Identifier: Apache-2.0
"""The calls of either side that a finding names beside the two at which programs part."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opscope.compare.cause.start_pairs import StartPairs
    from opscope.compare.cause.walks import Walk


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
