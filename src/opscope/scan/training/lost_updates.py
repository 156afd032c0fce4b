# SPDX-License-Identifier: Apache-2.0
"""Steps of an optimizer that leave a whole parameter as it was, although what they add to it cannot
have been rounded away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from opscope.judge.least_update import least_update, ulp_of
from opscope.operators.catalogue import family
from opscope.questions.findings import listed
from opscope.questions.rows import whole_calls
from opscope.run.keys import key
from opscope.scan.training.story import Note, Story

if TYPE_CHECKING:
    from opscope.run.schema import Call, Tensor

MARGIN = 2.0  # ulps of the parameter's largest element that an update has to be larger than
MAX_CALLS = 4096


def lost_updates(story: Story) -> Iterator[Note]:
    """A finding for each call that loses updates; where it comes back, findings are one."""
    suspects = sorted({key(*call_id) for call_id in _unmoved(story)})[:MAX_CALLS]
    for call, rows in whole_calls(story.run, np.array(suspects, dtype=np.int64)).values():
        lost = list(_lost(call, rows))
        if not lost:
            continue
        name, least, ulp, dtype = lost[0]
        yield Note(
            kind="lost-update",
            process=call.process,
            index=call.index,
            words=(
                f"{listed([each[0] for each in lost])} stay as they were: an update of {least:.3g} "
                f"at least is due to {name}, whose largest element has an ulp of {ulp:.3g} "
                f"({dtype})"
            ),
            parameters=tuple(each[0] for each in lost),
            finding=True,
            evidence={"least_update": least, "ulp": ulp},
        )


def _unmoved(story: Story) -> Iterator[tuple[int, int]]:
    """Calls that write a parameter in an optimizer's step and leave its bits."""
    before: dict[tuple[int, int, str], int | None] = {}
    for event in story.events:
        if event.phase != "optimizer" or event.role != "parameter" or not event.size:
            continue
        slot_id = (event.process, event.index, event.slot)
        if event.io == "input":
            before[slot_id] = event.digest
        elif event.digest is not None and before.get(slot_id) == event.digest:
            yield event.process, event.index


def _lost(call: Call, rows: list[Tensor]) -> Iterator[tuple[str, float, float, str]]:
    """(parameter, least update, ulp of its largest element, type) of those that should have
    moved.
    """
    given = {row.slot: row for row in rows if row.io == "input"}
    left = {row.slot: row for row in rows if row.io == "output"}
    for slot, after in left.items():
        before = given.get(slot)
        if after.role != "parameter" or before is None or not after.size:
            continue
        if before.digest is None or before.digest != after.digest:
            continue
        ulp = ulp_of(before)
        least = least_update(family(call.op), slot, call.args, given, left)
        if ulp is not None and least is not None and least > MARGIN * ulp:
            yield after.tensor_name or slot, least, ulp, after.dtype
