# SPDX-License-Identifier: Apache-2.0
"""Inputs of a model that its results do not depend on: no operator reads them, step after step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING

import numpy as np

from opscope.run.keys import keys_at
from opscope.run.query import rows_of, rows_where
from opscope.scan.training.story import Given, Note, Story

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools

STEPS = 3  # with a backward pass in which an input is not read


def unread_inputs(story: Story) -> Iterator[Note]:
    """One warning for each input of a model."""
    inputs: dict[tuple[int, str | None, str, str], list[Given]] = {}
    storages: set[int] = set()
    for each in story.given:
        if each.storage is not None and (each.size or 0) > 1:
            inputs.setdefault((each.process, each.module, each.op, each.slot), []).append(each)
            storages.add(each.storage)
    last = _last_reads(story, storages) if storages else {}
    for (process, module, op, slot), times in sorted(inputs.items(), key=_first):
        steps = {each.step for each in times}
        read = any(last.get((process, each.step, each.storage), -1) > each.index for each in times)
        if len(steps) >= STEPS and not read:
            whose = f"{module} ({op})" if module else op
            yield Note(
                kind="input-not-read",
                process=process,
                index=min(each.index for each in times),
                words=f"no operator reads input {slot} of {whose} in any of {len(steps)} steps",
            )


def _first(item: tuple[tuple[int, str | None, str, str], list[Given]]) -> tuple[int, str, int]:
    """What inputs are told in the order of: where each is given first, its slot, the process."""
    (process, _, _, slot), times = item
    return min(each.index for each in times), slot, process


def _last_reads(story: Story, storages: Set[int]) -> dict[tuple[int, int, int | None], int]:
    """The last operator of each process and step that reads one of these."""
    wanted = np.array(sorted(storages), dtype=np.int64)

    def touches(batch: Mapping[str, Array]) -> Bools:
        known = ~np.ma.getmaskarray(batch["storage"])
        return known & np.isin(np.ma.getdata(batch["storage"]), wanted)

    names = ("process", "index", "storage", "io")
    rows = [
        row
        for row in rows_where(story.run, "tensors", names, touches, story.calls)
        if row[3] == "input"
    ]
    names = ("process", "index", "step", "level")
    steps = {
        (process, index): step
        for process, index, step, level in rows_of(
            story.run, "calls", names, keys_at(row[:2] for row in rows)
        )
        if level == "operator"
    }
    last: dict[tuple[int, int, int | None], int] = {}
    for process, index, storage, _ in rows:
        if (process, index) in steps:
            state = (process, steps[process, index], storage)
            last[state] = max(index, last.get(state, index))
    return last
