# SPDX-License-Identifier: Apache-2.0
"""Two runs of different frameworks side by side: what both compute in common words, tensors by what they hold, not by their slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from opscope.analysis.align import align
from opscope.analysis.align_tokens import tokens_of
from opscope.analysis.attributes import differing_attributes
from opscope.analysis.compare_judge import Between, Pairing
from opscope.analysis.compare_pairs import pair_rows
from opscope.analysis.frameworks import naming
from opscope.analysis.lowering import fused_words, lowered
from opscope.analysis.results import equal_results
from opscope.analysis.slots import slotted

if TYPE_CHECKING:
    from opscope.analysis.compare_flow import Flow
    from opscope.analysis.compare_tables import Side
    from opscope.analysis.mapping import Mapping

# Gradients are computed in other orders and may bear other modules: all levels but the loosest match across (align_tokens).
CROSSING, CERTAIN = 5, 6


def pair_frameworks(sides: tuple[Side, Side], flows: tuple[Flow, Flow], mapping: Mapping | None) -> Pairing:
    """Calls matched and tensors paired between two frameworks; a user's mapping names the target's operators first."""
    fused = fused_words(sides[0]) | fused_words(sides[1])
    spells = (str if mapping is None else mapping.operator), str
    one, other = (lowered(side, flow, spell, fused) for side, flow, spell in zip(sides, flows, spells, strict=True))
    named = naming(one.side, other.side, mapping)
    given = [] if mapping is None else mapping.pairs(one.side, other.side)
    tokens = [
        msgspec.structs.replace(tokens_of(low.side, low.flow, names), crossing=CROSSING, certain=CERTAIN)
        for low, names in zip((one, other), named, strict=True)
    ]
    given = [*given, *equal_results((one.side, other.side), (tokens[0].part, tokens[1].part), given)]
    match = align(tokens[0], tokens[1], given=given)
    (target, flow), (golden, golden_flow) = slotted((one.side, one.flow), (other.side, other.flow), match)
    unlike = differing_attributes(target, golden, match)
    args = target.calls.args.copy()
    args[list(unlike)] = 1
    target = msgspec.structs.replace(target, calls=msgspec.structs.replace(target.calls, args=args))
    pair = (flow, golden_flow)
    return Pairing(target, golden, pair, match, pair_rows(target, golden, pair, match), Between(unlike, (one.groups, other.groups)))
