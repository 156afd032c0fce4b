# SPDX-License-Identifier: Apache-2.0
"""Steps of two programs that are counted otherwise: one that has no modules, or no optimizer, shows
a recorder no step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.pair.parameters import first_read, kept_names
from opscope.compare.side.columns import MODULE
from opscope.compare.side.contents import bears_identities
from opscope.compare.side.trained_tensors import computing
from opscope.run.hashes import distinct

if TYPE_CHECKING:
    from collections.abc import Callable

    from opscope.arrays import Ints
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side


def in_common_steps(pairing: Pairing) -> Pairing:
    """The pairing as it is where the two train in the same steps, or not at all and each in models.
    Else, and where one alone has other steps (an evaluation behind an optimizer's last step),
    with a step for each update of the parameters, or without steps behind the last that trains; and
    with all in one step where the two do not train in as many. Without common steps where some of
    a run were not recorded or not kept, and the two do not train in the same.
    """
    sides = pairing.target, pairing.golden
    trained = _trained_steps(sides[0]), _trained_steps(sides[1])
    if any(map(_lacks_steps, sides)):
        return pairing if trained[0] == trained[1] else _apart(pairing)
    shown = any(trained) or all((side.calls.level == MODULE).any() for side in sides)
    alike = trained[0] == trained[1] and shown
    if alike and same_steps(pairing) and not all(map(_uncounted, sides)):
        return pairing
    if alike:
        others = (_counted(pairing, steps) for steps in (_by_updates, _without_steps_behind))
        return next(filter(same_steps, others), pairing)
    recounted = _counted(pairing, _by_updates)
    mine, theirs = map(_trained_steps, (recounted.target, recounted.golden))
    if not shown or mine != theirs:
        return _counted(pairing, lambda side: np.zeros_like(side.calls.step))
    return recounted if same_steps(recounted) else _counted(recounted, _without_steps_behind)


def _lacks_steps(side: Side) -> bool:
    """Whether some steps of a run were left out, or not kept."""
    steps = distinct(side.calls.step[side.calls.leaf])
    gaps = not np.array_equal(steps, np.arange(len(steps)))
    return _is_recorded(side) and (gaps or not side.run.info.coverage.steps)


def _is_recorded(side: Side) -> bool:
    """Whether steps are counted from 0 on, as in opscope's own runs."""
    return bears_identities(side) and side.run.info.format == "opscope"


def begin_late(pairing: Pairing) -> bool:
    """Whether one of two runs has no call of its first step."""
    return _begins_late(pairing.target) or _begins_late(pairing.golden)


def _begins_late(side: Side) -> bool:
    steps = side.calls.step[side.calls.leaf]
    return _is_recorded(side) and bool(len(steps)) and int(steps.min()) > 0


def _apart(pairing: Pairing) -> Pairing:
    """The pairing without common steps: the target's are counted on behind golden's."""
    behind = int(pairing.golden.calls.step.max(initial=0)) + 1
    return _counted(
        pairing, lambda side: side.calls.step + (behind if side is pairing.target else 0)
    )


def _uncounted(side: Side) -> bool:
    """Whether a dump has all that it knows in one step."""
    return not bears_identities(side) and len(distinct(side.calls.step)) == 1


def same_steps(pairing: Pairing) -> bool:
    """Whether both sides have calls in the same steps."""
    mine, theirs = (
        distinct(side.calls.step[side.calls.leaf]) for side in (pairing.target, pairing.golden)
    )
    return bool(np.array_equal(mine, theirs))


def no_steps(pairing: Pairing) -> bool:
    """Whether the two have no step in common."""
    mine, theirs = (set(side.calls.step.tolist()) for side in (pairing.target, pairing.golden))
    return not mine & theirs


def _trained_steps(side: Side) -> set[int]:
    backward = side.in_phase("backward")
    return set(side.calls.step[backward].tolist())


def _counted(pairing: Pairing, steps: Callable[[Side], Ints]) -> Pairing:
    """The pairing with other steps of each side's calls."""
    sides = [
        msgspec.structs.replace(
            side,
            calls=msgspec.structs.replace(
                side.calls, step=steps(side).astype(side.calls.step.dtype)
            ),
        )
        for side in (pairing.target, pairing.golden)
    ]
    return msgspec.structs.replace(pairing, target=sides[0], golden=sides[1])


def _without_steps_behind(side: Side) -> Ints:
    """For each call its step, or the last one that trains where it is behind that: what an
    evaluation computes is in the last step of a program whose updates show no recorder a step.
    """
    steps: Ints = np.minimum(side.calls.step, max(_trained_steps(side), default=0))
    return steps


def _by_updates(side: Side) -> Ints:
    """For each call how many updates are over: all that is written to parameters between one
    backward pass and the next is one.
    """
    tensors, calls = side.tensors, side.calls
    backward = side.in_phase("backward")
    of_norms = np.array(sorted(kept_names(side, first_read(side))), dtype=np.uint64)
    computes = computing(side) & ~backward
    written = tensors.output & tensors.parameter & (tensors.named != 0) & computes[tensors.call]
    updates = np.unique(tensors.call[written & ~np.isin(tensors.named, of_norms)])
    passes = np.cumsum(backward)[updates]  # calls of backward passes before each update
    updates, passes = updates[passes > 0], passes[passes > 0]
    _, behind = np.unique(passes[::-1], return_index=True)  # the last update behind each
    last = updates[::-1][behind]
    counts: Ints = np.searchsorted(last, np.arange(len(calls)), side="left")
    return counts
