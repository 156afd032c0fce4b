# SPDX-License-Identifier: Apache-2.0
"""Operators and module paths of one world in the words of another: PyTorch, MindSpore, CANN,
TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Words
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.side.columns import Side
from opscope.compare.side.tokens import Naming, bare_module
from opscope.run.hashes import distinct

if TYPE_CHECKING:
    from opscope.compare.pair.mapping import Mapping


_COMMON = 0.2  # share of calls in shared modules


def naming(target: Side, golden: Side, mapping: Mapping | None) -> tuple[Naming, Naming]:
    """How the words of each side are spelt so that equal things are spelt alike."""
    ranks = _paired(distinct(target.calls.rank).tolist(), distinct(golden.calls.rank).tolist())
    steps = _paired(distinct(target.calls.step).tolist(), distinct(golden.calls.step).tolist())
    mine, theirs = (set(distinct(side.calls.level).tolist()) for side in (target, golden))
    by_level = bool(mine & theirs) or not mine or not theirs
    spell = (lambda op: op) if mapping is None else mapping.operator
    move = bare_module if mapping is None else mapping.mover(target)
    by_module = _share_modules(target, golden, move)
    phase = _phases(target, golden)
    same = {number: number for number in ranks.values()}
    return (
        Naming(spell, move, ranks, steps, phase, by_level=by_level, by_module=by_module),
        Naming(
            lambda op: op,
            bare_module,
            same,
            {number: number for number in steps.values()},
            phase,
            by_level=by_level,
            by_module=by_module,
        ),
    )


def _paired(target: list[int], golden: list[int]) -> Words[int, int]:
    """Ranks or steps of the target by those of golden: equal numbers, or in order where no number
    is shared and the counts agree.
    """
    shared = set(target) & set(golden)
    if not shared and len(target) == len(golden):
        return dict(zip(target, golden, strict=True))
    return {number: number for number in shared}


def _share_modules(target: Side, golden: Side, move: Callable[[str], str]) -> bool:
    """Whether module paths mean anything across the two: a good part of the calls of either side
    stands in modules both have.
    """
    counted = []
    for side, moved in ((target, move), (golden, bare_module)):
        modules, numbers = np.unique(side.calls.module, return_counts=True)
        names = [moved(text) for text in side.texts(modules)]
        counted.append(
            {
                name: sum(
                    n for other, n in zip(names, numbers.tolist(), strict=True) if other == name
                )
                for name in names
            }
        )
    shared = (counted[0].keys() & counted[1].keys()) - {""}
    if counted[0].keys() == counted[1].keys():
        return True
    return all(
        sum(side[name] for name in shared) > _COMMON * sum(side.values()) for side in counted
    )


def _phases(target: Side, golden: Side) -> Callable[[str], str]:
    """How phases are told apart: a dump that does not know an optimizer's calls has them among the
    forward ones.
    """
    known = [set(side.texts(distinct(side.calls.phase))) for side in (target, golden)]
    if len(known[0] & {"optimizer"}) == len(known[1] & {"optimizer"}):
        return str
    return lambda phase: "forward" if phase == "optimizer" else phase
