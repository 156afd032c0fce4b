# SPDX-License-Identifier: Apache-2.0
"""Causes of a comparison between levels: what one recorded as a call, the other may have recorded
as many.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opscope.compare.cause.causes import ARRIVED, EXTRA, MISSING, Cause
from opscope.compare.pair.equal_results import LEAST
from opscope.compare.pair.pairing import Pairing
from opscope.compare.side.lowering import foreign
from opscope.run.keys import NONE


def sure_of_levels(pairing: Pairing, causes: Sequence[Cause]) -> list[Cause]:
    """Causes of a comparison between levels: a call that one side has may be part of what the other
    recorded as one.

    Such causes are left out where others explain the difference, and are suspected where none does.
    So is a number or two that arrived unlike: a step counter is read before it is raised, or after.
    """
    if pairing.between is None or foreign(pairing.target, pairing.golden):
        return list(causes)
    others = [
        cause
        for cause in causes
        if cause.kind not in {EXTRA, MISSING} and not _is_small(pairing, cause)
    ]
    return others or [msgspec.structs.replace(cause, sure=False) for cause in causes]


def _is_small(pairing: Pairing, cause: Cause) -> bool:
    row = int(pairing.rows.target[cause.row]) if cause.row >= 0 else NONE
    return cause.kind == ARRIVED and row >= 0 and int(pairing.target.tensors.size[row]) < LEAST
