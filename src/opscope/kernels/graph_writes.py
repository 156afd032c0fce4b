# SPDX-License-Identifier: Apache-2.0
"""What a compiled graph was seen to write to, which nobody had said before it ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import get_ident

from opscope.kernels.calls import Draft, written


class GraphWrites:
    """The part of the bookkeeper that is told so while the graph's call is open."""

    _open: dict[int, list[Draft]]

    def wrote(self, slots: Sequence[str]) -> None:
        """The graph that is running in this thread has written to these of its inputs too."""
        calls = reversed(self._open.get(get_ident(), []))
        draft = next((each for each in calls if each.operator.graph), None)
        if draft is None:
            return
        for seen in draft.inputs:
            new = seen.slot in slots and not written(draft.operator, seen.slot)
            if new and seen.storage is not None:
                seen.storage.steady -= 1
        draft.operator = replace(draft.operator, writes=draft.operator.writes | {*slots})
