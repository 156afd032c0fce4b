# SPDX-License-Identifier: Apache-2.0
"""Steps of two programs that are counted otherwise: one that has no modules, or no optimizer, shows
a recorder no step.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.pair.parameters import first_read, kept_names
from opscope.compare.side.call_rows import computing, inputs_of, steps_of
from opscope.compare.side.columns import MODULE
from opscope.compare.side.contents import bears_identities, differentiated
from opscope.operators.catalogue import traits_of
from opscope.run.hashes import distinct, mixed

if TYPE_CHECKING:
    from collections.abc import Callable

    from opscope.arrays import Bools, Ints
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow


def in_common_steps(pairing: Pairing) -> Pairing | None:
    """The pairing as it is where the two train in the same steps, or not at all and each in models.
    Else, and where one alone has other steps (an evaluation behind an optimizer's last step),
    with a step for each update of the parameters, or for each round of them, or without steps
    behind the last that trains; None where the two do not train in as many. Without common steps
    where some of a run were not recorded or not kept, and the two do not train in the same. Late
    updates are in the steps of their gradients.
    """
    pairing = _counted(pairing, _with_late_updates)
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
    if not shown:
        return in_one_step(pairing)
    counts = (_counted(pairing, steps) for steps in (_by_updates, _by_rounds))
    recounted = next(filter(_trained_alike, counts), None)
    if recounted is None or same_steps(recounted):
        return recounted
    return _counted(recounted, _without_steps_behind)


def _late_updates(side: Side) -> Bools:
    """Calls of optimizers that come before the backward pass of their step, which are those of the
    step before: of an optimizer that is made in the middle of a training no recorder knows when the
    first of others steps. Not where that step writes to the same parameters already.
    """
    steps, backward = steps_of(side), np.flatnonzero(side.in_phase("backward"))
    trained, first = np.unique(steps[backward], return_index=True)
    begins = np.full(len(steps), len(steps))
    own = np.isin(steps, trained)
    begins[own] = backward[first][np.searchsorted(trained, steps[own])]
    updates = side.in_phase("optimizer")
    late: Bools = updates & (np.arange(len(steps)) < begins) & np.isin(steps - 1, trained)
    tensors = side.tensors
    rows = np.flatnonzero(tensors.output & tensors.parameter & updates[tensors.call])
    behind = late[tensors.call[rows]]
    at = steps[tensors.call[rows]] - behind
    written = mixed(at.astype(np.uint64), tensors.storage[rows].astype(np.uint64))
    twice = at[behind & np.isin(written, written[~behind])] + 1
    return late & ~np.isin(steps, twice)


def _with_late_updates(side: Side, _: Flow) -> Ints:
    """For each call its step, of late updates the one before."""
    if not _is_recorded(side):
        return side.calls.step
    steps: Ints = side.calls.step - _late_updates(side)
    return steps


def in_one_step(pairing: Pairing) -> Pairing:
    """The pairing with all that either side computes in one step."""
    return _counted(pairing, lambda side, _: np.zeros_like(side.calls.step))


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
        pairing, lambda side, _: side.calls.step + (behind if side is pairing.target else 0)
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


def _trained_alike(pairing: Pairing) -> bool:
    """Whether both sides train in the same steps."""
    return _trained_steps(pairing.target) == _trained_steps(pairing.golden)


def _trained_steps(side: Side) -> set[int]:
    backward = side.in_phase("backward")
    return set(side.calls.step[backward].tolist())


def _counted(pairing: Pairing, steps: Callable[[Side, Flow], Ints]) -> Pairing:
    """The pairing with other steps of each side's calls."""
    sides = [
        msgspec.structs.replace(
            side,
            calls=msgspec.structs.replace(
                side.calls, step=steps(side, flow).astype(side.calls.step.dtype)
            ),
        )
        for side, flow in zip((pairing.target, pairing.golden), pairing.flows, strict=True)
    ]
    return msgspec.structs.replace(pairing, target=sides[0], golden=sides[1])


def _without_steps_behind(side: Side, _: Flow) -> Ints:
    """For each call its step, or the last one that trains where it is behind that: what an
    evaluation computes is in the last step of a program whose updates show no recorder a step.
    """
    steps: Ints = np.minimum(side.calls.step, max(_trained_steps(side), default=0))
    return steps


def _by_updates(side: Side, flow: Flow) -> Ints:
    """For each call how many updates are over: all that is written to parameters between one
    backward pass and the next is one.
    """
    return _over(side, [last for last, _ in _updates(side, flow)])


def _by_rounds(side: Side, flow: Flow) -> Ints:
    """The same, where updates of other parameters that follow one another are one: of the members
    of an ensemble, of what two optimizers train in turn.
    """
    ends, names = list[int](), set[int]()
    for last, written in _updates(side, flow):
        if ends and not names & written:
            ends[-1], names = last, names | written
        else:
            ends.append(last)
            names = written
    return _over(side, ends)


def _over(side: Side, ends: list[int]) -> Ints:
    """For each call how many of these calls go before it."""
    counts: Ints = np.searchsorted(ends, np.arange(len(side.calls)), side="left")
    return counts


def _updates(side: Side, flow: Flow) -> list[tuple[int, set[int]]]:
    """Where what is written to parameters between one backward pass and the next ends, before any
    call that this goes through, and the names of all that are written to there.
    """
    tensors, calls = side.tensors, side.calls
    backward = side.in_phase("backward")
    of_norms = np.array(sorted(kept_names(side, first_read(side))), dtype=np.uint64)
    copies = calls.leaf & side.which(calls.op, lambda op: bool(traits_of(op).overwrites))
    norms = side.which(calls.op, lambda op: traits_of(op).tolerance == "norm")
    writes = (computing(side) | copies) & ~backward & ~norms
    written = tensors.output & tensors.parameter & (tensors.named != 0) & writes[tensors.call]
    rows = np.flatnonzero(written & ~np.isin(tensors.named, of_norms))
    through = differentiated(side)
    passes, forward = np.flatnonzero(backward), np.flatnonzero(through)
    before = np.searchsorted(passes, tensors.call[rows])  # calls of backward passes
    after = np.searchsorted(forward, tensors.call[rows])  # of the forward pass behind
    last, names = dict[int, int](), defaultdict[int, set[int]](set)
    begun: dict[int, int] = {}
    for row, behind, ahead in zip(rows.tolist(), before.tolist(), after.tolist(), strict=True):
        if behind and begun.setdefault(behind, ahead) == ahead:
            last[behind] = int(tensors.call[row])
            names[behind].add(int(tensors.named[row]))
    return [
        (_averaged(side, flow, through, call, int(passes[behind - 1])), names[behind])
        for behind, call in last.items()
    ]


def _averaged(side: Side, flow: Flow, through: Bools, update: int, since: int) -> int:
    """The last call of an update, or of those behind it that compute element by element with what
    was made since its backward pass, as averages of weights are that are computed anew. through:
    calls that a backward pass goes through.
    """
    last = update
    for call in range(update + 1, len(side.calls)):
        traits = traits_of(side.operator(call))
        if not side.calls.leaf[call] or traits.idle or traits.view:
            continue
        if through[call] or not traits.pointwise:
            break
        if (flow.producer[inputs_of(side, call)] > since).any():
            last = call  # what is averaged may be made smaller first
    return last
