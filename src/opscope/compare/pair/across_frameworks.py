# SPDX-License-Identifier: Apache-2.0
"""Two runs of different frameworks side by side: what both compute in common words, tensors by what
they hold, not by their slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.pair.alignment import Match, align
from opscope.compare.pair.attributes import differing_attributes
from opscope.compare.pair.equal_results import LEAST, equal_results
from opscope.compare.pair.files import same_files
from opscope.compare.pair.pairing import Between, Pairing
from opscope.compare.pair.renaming import naming
from opscope.compare.pair.slots import slotted
from opscope.compare.pair.tensors import pair_rows
from opscope.compare.side.call_rows import computing
from opscope.compare.side.lowering import OPTIMIZERS, Lowered, fused_words, lowered, worlds_apart
from opscope.compare.side.tokens import bare_module, tokens_of
from opscope.operators.catalogue import traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opscope.compare.pair.mapping import Mapping
    from opscope.compare.pair.sequences import Pair
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

# Gradients are computed in other orders and may bear other modules: all levels but the loosest
# match across (side.tokens).
CROSSING, CERTAIN = 5, 6
_AGREES = 1e-3


def pair_frameworks(
    sides: tuple[Side, Side], flows: tuple[Flow, Flow], mapping: Mapping | None
) -> Pairing:
    """Calls matched and tensors paired between two frameworks; a user's mapping names the target's
    operators first.
    """
    fused = fused_words(sides[0]) | fused_words(sides[1])
    spells = (str if mapping is None else mapping.operator), str
    mine, theirs = (
        lowered(side, flow, spell, fused)
        for side, flow, spell in zip(sides, flows, spells, strict=True)
    )
    named = [
        msgspec.structs.replace(names, by_level=False)
        for names in naming(mine.side, theirs.side, mapping)
    ]  # leaves on both sides
    named_so = [*([] if mapping is None else mapping.pairs(mine.side, theirs.side))]
    named_so += same_files(
        mine.side, theirs.side, named_so, None if mapping is None else mapping.originals
    )
    tokens = [
        msgspec.structs.replace(
            tokens_of(low.side, low.flow, names), crossing=CROSSING, certain=CERTAIN
        )
        for low, names in zip((mine, theirs), named, strict=True)
    ]
    given = [
        *named_so,
        *equal_results((mine.side, theirs.side), (tokens[0].part, tokens[1].part), named_so),
    ]
    match = _plausible(mine, theirs, align(tokens[0], tokens[1], given=given), named_so)
    fixed = None if mapping is None else mapping.rows(mine.side, theirs.side, match)
    (target, flow), (golden, golden_flow) = slotted(
        (mine.side, mine.flow), (theirs.side, theirs.flow), match, fixed
    )
    unlike = differing_attributes(target, golden, match)
    args = target.calls.args.copy()
    args[list(unlike)] = 1
    target = msgspec.structs.replace(target, calls=msgspec.structs.replace(target.calls, args=args))
    pair = (flow, golden_flow)
    return Pairing(
        target,
        golden,
        pair,
        match,
        pair_rows(target, golden, pair, match),
        Between(unlike, (mine.groups, theirs.groups)),
    )


def in_words_alone(pairing: Pairing) -> bool:
    """Whether a program of MindSpore or TensorFlow and one of another framework, of which versions
    of tensors and their statistics are known, may have little more in common than words: each runs
    calls that compute and have no partner on the other, or one does where both are trained.
    """
    sides = (pairing.target, pairing.match.target), (pairing.golden, pairing.match.golden)
    if not worlds_apart(pairing.target, pairing.golden):
        return False
    if not all(side.run.info.coverage.versions for side, _ in sides):
        return False
    if not all(np.isfinite(side.tensors.l2norm).any() for side, _ in sides):
        return False
    lonely = [bool((computing(side) & (match < 0)).any()) for side, match in sides]
    trained = [bool(side.in_phase("backward").any()) for side, _ in sides]
    return all(lonely) or (any(lonely) and all(trained))


def _plausible(
    lowered_target: Lowered, lowered_golden: Lowered, match: Match, named_so: Sequence[Pair]
) -> Match:
    """The pairs that something speaks for: a name, a result or inputs that agree, or the same
    module for what is no building block.
    """
    (target, flow), (golden, golden_flow) = slotted(
        (lowered_target.side, lowered_target.flow),
        (lowered_golden.side, lowered_golden.flow),
        match,
    )
    rows = pair_rows(target, golden, (flow, golden_flow), match)
    count = len(match.target)
    both = np.flatnonzero((rows.target >= 0) & (rows.golden >= 0) & ~np.isnan(rows.error))
    both = both[target.tensors.size[rows.target[both]] >= LEAST]
    agree, calls, output = rows.error[both] <= _AGREES, rows.target_call[both], rows.output[both]
    known, some, result, odd = (np.zeros(count, dtype=np.bool_) for _ in range(4))
    (
        known[calls],
        some[calls[agree]],
        result[calls[agree & output]],
        odd[calls[~agree & ~output]],
    ) = True, True, True, True
    generic = {code for code, word in target.words.items() if traits_of(word).generic}
    block = np.isin(target.calls.op, np.array(sorted(generic), dtype=np.uint64))
    backward = {code for code, word in target.words.items() if word == "backward"}
    strict = block | np.isin(
        target.calls.phase, np.array(sorted(backward), dtype=np.uint64)
    )  # gradients share what they read
    weak = known & ~result & np.where(strict, odd | ~some, ~some)
    weak[[call for call, _ in named_so]] = False
    weak &= ~target.which(
        target.calls.op, OPTIMIZERS.__contains__
    )  # one a step, whatever it makes of the parameters
    mine, theirs = match.target.copy(), match.golden.copy()
    for call in np.flatnonzero(weak & (mine >= 0)).tolist():
        paths = [
            bare_module(side.words.get(int(side.calls.module[at]), ""))
            for side, at in ((target, call), (golden, mine[call]))
        ]
        if block[call] or not _akin(paths[0], paths[1]):
            theirs[mine[call]] = NONE
            mine[call] = NONE
    return Match(mine, theirs)


def _akin(path: str, other: str) -> bool:
    """Whether two module paths end alike, as far as the shorter one goes."""
    return bool(path and other) and (
        path == other or path.endswith(f".{other}") or other.endswith(f".{path}")
    )
