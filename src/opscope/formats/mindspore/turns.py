# SPDX-License-Identifier: Apache-2.0
"""Calls of graphs that took turns: a loop's condition and its body are two graphs, and each has a
folder of its own.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opscope.formats.mindspore.call_files import CallFiles
    from opscope.run.schema import Call

Key = tuple[int, int]


def in_turns(calls: Sequence[Call], files: dict[Key, CallFiles]) -> list[Call]:
    """The calls of one process, those of a step in the order of time where its graphs took turns;
    files follows the new numbers.
    """
    steps: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        steps[call.step].append(call)
    ordered: list[Call] = []
    for own in steps.values():
        times = [_time(files[call.process, call.index]) for call in own]
        folders = [files[call.process, call.index].place.path for call in own]
        ordered += _renumbered(own, times, files) if _took_turns(times, folders) else own
    return ordered


def _time(file: CallFiles) -> int:
    return file.run.time if file.run is not None else 0


def _took_turns(times: list[int], folders: list[Path]) -> bool:
    """Whether one folder began before another ended."""
    spans: dict[Path, tuple[int, int]] = {}
    for time, folder in zip(times, folders, strict=True):
        if time > 0:
            first, last = spans.get(folder, (time, time))
            spans[folder] = (min(first, time), max(last, time))
    ordered = sorted(spans.values())
    return any(following[0] < last for (_, last), following in pairwise(ordered))


def _renumbered(calls: list[Call], times: list[int], files: dict[Key, CallFiles]) -> list[Call]:
    """The calls by time, with the numbers they have together; those without a time stay behind what
    was before them.
    """
    latest, keys = 0, []
    for position, time in enumerate(times):
        latest = time or latest
        keys.append((latest, position))
    numbers = sorted(call.index for call in calls)
    order = [calls[position] for _, position in sorted(keys)]
    new = {call.index: number for call, number in zip(order, numbers, strict=True)}
    moved = {call.index: files.pop((call.process, call.index)) for call in calls}
    renumbered = []
    for call in order:
        files[call.process, new[call.index]] = moved[call.index]
        renumbered.append(
            msgspec.structs.replace(
                call,
                index=new[call.index],
                parent=new.get(call.parent, call.parent) if call.parent is not None else None,
                forward_index=new.get(call.forward_index, call.forward_index)
                if call.forward_index is not None
                else None,
            )
        )
    return renumbered
