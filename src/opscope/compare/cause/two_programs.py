# SPDX-License-Identifier: Apache-2.0
"""The causes of two programs that are written differently: judged by regions, or not at all where
too little of them was recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from opscope.compare.cause.causes import EXTRA, MISSING
from opscope.compare.cause.drawn_parameters import drawn_anew
from opscope.compare.cause.loss_scales import without_scales
from opscope.compare.cause.partings import cause_of
from opscope.compare.cause.read_out import first_unlike
from opscope.compare.cause.regions import Regions
from opscope.compare.cause.results import infer
from opscope.compare.cause.written_otherwise import (
    computes_alone,
    half_trained,
    unread,
    written_in_part,
    written_otherwise,
)
from opscope.compare.pair.common_steps import (
    in_common_steps,
    in_one_step,
    no_steps,
    same_steps,
)
from opscope.compare.pair.parameters import same_parameters
from opscope.compare.side.bridges import bridged
from opscope.compare.side.contents import bears_identities, in_dumps, told_by_contents
from opscope.compare.side.loaded_weights import with_weights
from opscope.compare.side.trained_tensors import names_parameters, with_trained_names

if TYPE_CHECKING:
    from opscope.arrays import Bools
    from opscope.compare.cause.causes import Cause
    from opscope.compare.cause.partings import Parting
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

NOTHING = (
    "the two show nothing that is in both: no gradients, no loss or result of a batch that is cut "
    "alike, nor as many numbers that both read out; only single calls were compared"
)


def judged(
    pairing: Pairing, causes: list[Cause], exceeds: Bools, *, values: bool
) -> tuple[Pairing, list[Cause]]:
    """The causes of a pairing of two programs that are written differently: nothing where all that
    matters agrees, else one; what was found call by call where they are written alike. exceeds:
    calls of the target that make more of a difference than their operators may; values: whether
    those that are kept may be read.
    """
    if (causes or computes_alone(pairing)) and (why := unread(pairing)) is not None:
        return msgspec.structs.replace(pairing, by_regions=True, until=why), []
    otherwise = written_otherwise(pairing)
    if not (otherwise or written_in_part(pairing)):
        return pairing, [] if _reach_nothing(pairing, causes, exceeds, values=values) else causes
    common = without_scales(_in_steps(pairing))
    if otherwise and no_steps(common):
        return msgspec.structs.replace(pairing, by_regions=True, until=NOTHING), []
    regions = Regions(common, exceeds)
    if not regions.begun_alike() or not (otherwise or regions.trained or half_trained(pairing)):
        return pairing, causes
    parting = regions.parting(values=values)
    dumps = not any(map(bears_identities, (pairing.target, pairing.golden)))
    if dumps and regions.nothing and (causes or not half_trained(pairing)):
        return pairing, causes
    pairing = msgspec.structs.replace(pairing, by_regions=True, recounted=same_steps(common))
    if parting is None:
        until = NOTHING if regions.nothing else None
        metric = regions.metric or first_unlike(common, regions.meetings, regions.unmet)
        beyond = until is None and regions.beyond
        return msgspec.structs.replace(pairing, until=until, metric=metric, beyond=beyond), []
    if parting.grown:
        return msgspec.structs.replace(pairing, grown=True), []
    pairing = msgspec.structs.replace(pairing, by_parts=not parting.sized)
    told = not in_dumps(pairing.target, pairing.golden)  # what was drawn
    drawn = drawn_anew(pairing, causes, regions.names) if told else []
    missing = _missing_there(causes, parting) if dumps else []
    return pairing, drawn[:1] or missing or [cause_of(pairing, parting)]


def _reach_nothing(pairing: Pairing, causes: list[Cause], exceeds: Bools, *, values: bool) -> bool:
    """Whether all that was found is that one side runs calls alone, in two trainings in which all
    that matters agrees: a shape is made and taken back.
    """
    if not causes or any(cause.kind not in {EXTRA, MISSING} for cause in causes):
        return False
    common = without_scales(_in_steps(pairing))
    if no_steps(common):
        return False
    regions = Regions(common, exceeds)
    if not (regions.begun_alike() and regions.trained):
        return False
    return regions.parting(values=values) is None and not regions.nothing


def _missing_there(causes: list[Cause], parting: Parting) -> list[Cause]:
    """The call that was found missing call by call, where two dumps part at the very same place."""
    return [
        cause
        for cause in causes[:1]
        if cause.kind == MISSING and (cause.target, cause.golden) == parting.start
    ]


def _in_steps(pairing: Pairing) -> Pairing:
    """The pairing in steps that both have, with names for what is trained; without those of what a
    program computes anew where none is a parameter of both, or the two do not train in as many
    steps: which of its gradients and states are the other's is not known then.
    """
    told = [
        told_by_contents(side, flow)
        for side, flow in zip((pairing.target, pairing.golden), pairing.flows, strict=True)
    ]
    named = _with_gradients(pairing, told, anew=True)
    common = in_common_steps(named)
    if all(names_parameters(side) for side, _ in told):
        return common or in_one_step(named)
    if common is None or not same_parameters(common.target, common.golden):
        named = _with_gradients(pairing, told, anew=False)
        common = in_common_steps(named)
    return common or in_one_step(named)


def _with_gradients(pairing: Pairing, told: list[tuple[Side, Flow]], *, anew: bool) -> Pairing:
    """The pairing with names for what is trained and its gradients, and backward passes that go
    through calls that were not recorded. told: its sides and flows by contents; anew: also for what
    is computed anew.
    """
    target, golden = (with_trained_names(side, flow, anew=anew) for side, flow in told)
    if infer(pairing):
        target, golden = with_weights((target, golden), (told[0][1], told[1][1]))
    mine, theirs = (
        bridged(side, flow) for side, (_, flow) in zip((target, golden), told, strict=True)
    )
    return msgspec.structs.replace(pairing, target=target, golden=golden, flows=(mine, theirs))
