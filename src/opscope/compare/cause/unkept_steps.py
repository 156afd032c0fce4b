# SPDX-License-Identifier: Apache-2.0
"""What steps left behind that were not kept: nobody knows which call made it differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.cause.causes import ARRIVED
from opscope.compare.pair.arguments import difference_of
from opscope.compare.pair.common_steps import begin_late
from opscope.compare.side.records import call_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opscope.compare.cause.causes import Cause
    from opscope.compare.pair.pairing import Pairing

MOST_UNLIKE = 64  # calls that are asked for their arguments
UNKEPT = (
    "{} that the first step finds {} not golden's, by up to {:.3g}: it comes of steps before it, "
    "which were not kept (--keep all keeps them, --noise-run tells whether rounding explains it)"
)


def without_unkept(pairing: Pairing, causes: Sequence[Cause]) -> tuple[Pairing, list[Cause]]:
    """The causes but for parameters, and what optimizers keep, that differ when they are first read
    in runs which do not begin with their first step; the pairing says so.
    """
    late = begin_late(pairing)
    left = [cause for cause in causes if late and _is_left(pairing, cause)]
    if not left:
        return pairing, list(causes)
    rows = np.unique([cause.row for cause in left])
    words = f"{len(rows)} tensor{'s' * (len(rows) > 1)}", "are" if len(rows) > 1 else "is"
    until = UNKEPT.format(*words, float(np.max(pairing.rows.error[rows])))
    until += _other_arguments(pairing)
    return msgspec.structs.replace(pairing, until=until), [
        cause for cause in causes if not _is_left(pairing, cause)
    ]


def _other_arguments(pairing: Pairing) -> str:
    """The first call with other arguments than golden's, which need not be a fault: a number that a
    program reads out and computes with differs as what it was read from.
    """
    calls, match = pairing.target.calls, pairing.match.target
    matched = np.flatnonzero((match >= 0) & calls.leaf)
    unlike = matched[calls.args[matched] != pairing.golden.calls.args[match[matched]]]
    for call in unlike[:MOST_UNLIKE].tolist():
        words = difference_of(pairing, call, int(match[call]))
        if words:
            record = call_records(pairing.target, [call])[call]
            return f"; of {record.op} at {record.source} {words}"
    return ""


def _is_left(pairing: Pairing, cause: Cause) -> bool:
    """Whether a cause is what a program keeps from step to step, and not what it is given."""
    if cause.kind != ARRIVED or cause.row < 0:
        return False
    side, row = pairing.target, int(pairing.rows.target[cause.row])
    if row < 0:
        return False
    updates = side.words.get(int(side.calls.phase[side.tensors.call[row]])) == "optimizer"
    return updates or bool(side.tensors.parameter[row] or side.tensors.named[row])
