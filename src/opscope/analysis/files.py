# SPDX-License-Identifier: Apache-2.0
"""Folders of arrays: a file's partner is the file, or the operator, of its name, whatever order a folder would have.

A golden of TensorFlow or another folder beside a dump holds the outputs of operators under their names, with `/` and `.` written `_`
as file names need it; the type before a kernel's name is no part of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from opscope.analysis.compare_details import call_records

if TYPE_CHECKING:
    from opscope.analysis.align_sequences import Pair
    from opscope.analysis.compare_tables import Side

ARRAYS = "arrays"  # RunInfo.format of a folder of arrays
_LETTERS = re.compile(r"[^0-9A-Za-z]+")


def beside_files(target: Side, golden: Side) -> bool:
    """Whether one of two runs is a folder of arrays, which knows names and values and nothing of calls."""
    return (target.run.info.format == ARRAYS) != (golden.run.info.format == ARRAYS)


def same_files(target: Side, golden: Side, given: Iterable[Pair]) -> list[Pair]:
    """Calls of one step and name, where each side has one of it; none where neither side is a folder of arrays, none given already."""
    formats = [side.run.info.format for side in (target, golden)]
    if ARRAYS not in formats:
        return []
    taken = [{pair[side] for pair in given} for side in (0, 1)]
    whole = formats[0] == formats[1]
    mine, theirs = (_by_name(side, gone, whole=whole) for side, gone in zip((target, golden), taken, strict=True))
    return [(call, theirs[place]) for place, call in mine.items() if place in theirs]


def _by_name(side: Side, gone: set[int], *, whole: bool) -> dict[tuple[int, int, str], int]:
    """Calls by rank, step and name; whole: as it stands, else as file names would have it."""
    found = [
        ((call.rank, call.step, call.name if whole else _LETTERS.sub("_", call.name.removeprefix(f"{call.op}."))), place)
        for place, call in call_records(side, range(len(side.calls))).items()
        if place not in gone and side.calls.leaf[place]
    ]
    counts = Counter(place for place, _ in found)
    return {place: call for place, call in found if counts[place] == 1}
