# SPDX-License-Identifier: Apache-2.0
"""Two folders of arrays: a file's partner is the file of its name, whatever order the folders would have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.analysis.align_sequences import Pair
    from opscope.analysis.compare_tables import Side

ARRAYS = "arrays"  # RunInfo.format of a folder of arrays


def same_files(target: Side, golden: Side, given: Iterable[Pair]) -> list[Pair]:
    """Calls of one rank, step and name, where each side has one of it; none for other dumps, and none that is given already."""
    if not target.run.info.format == golden.run.info.format == ARRAYS:
        return []
    taken = [{pair[side] for pair in given} for side in (0, 1)]
    mine, theirs = (_by_name(side, gone) for side, gone in zip((target, golden), taken, strict=True))
    return [(call, theirs[place]) for place, call in mine.items() if place in theirs]


def _by_name(side: Side, gone: set[int]) -> dict[tuple[int, ...], int]:
    calls = side.calls
    places: NDArray[np.uint64] = np.stack([calls.rank.view(np.uint64), calls.step.view(np.uint64), calls.name], axis=1)
    rows, first, counts = np.unique(places, axis=0, return_index=True, return_counts=True)
    alone = zip(rows[counts == 1].tolist(), first[counts == 1].tolist(), strict=True)
    return {tuple(place): call for place, call in alone if call not in gone}
