# SPDX-License-Identifier: Apache-2.0
"""Operators and module paths of one world in the words of another: PyTorch, MindSpore, CANN, TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping as Words
from typing import TYPE_CHECKING

import numpy as np

from opscope.analysis.align_tokens import Naming, bare_module
from opscope.analysis.compare_tables import Side

if TYPE_CHECKING:
    from opscope.analysis.mapping import Mapping


def naming(target: Side, golden: Side, mapping: Mapping | None) -> tuple[Naming, Naming]:
    """How the words of each side are spelt so that equal things are spelt alike."""
    ranks = _paired(np.unique(target.calls.rank).tolist(), np.unique(golden.calls.rank).tolist())
    steps = _paired(np.unique(target.calls.step).tolist(), np.unique(golden.calls.step).tolist())
    mine, theirs = (set(np.unique(side.calls.level).tolist()) for side in (target, golden))
    by_level = bool(mine & theirs) or not mine or not theirs
    by_module = _share_modules(target, golden)
    spell = (lambda op: op) if mapping is None else mapping.operator
    move = bare_module if mapping is None else mapping.mover(target)
    same = {number: number for number in ranks.values()}
    return (
        Naming(spell, move, ranks, steps, by_level=by_level, by_module=by_module),
        Naming(lambda op: op, bare_module, same, {number: number for number in steps.values()}, by_level=by_level, by_module=by_module),
    )


def _paired(target: list[int], golden: list[int]) -> Words[int, int]:
    """Ranks or steps of the target by those of golden: equal numbers, or in order where no number is shared and the counts agree."""
    shared = set(target) & set(golden)
    if not shared and len(target) == len(golden):
        return dict(zip(target, golden, strict=True))
    return {number: number for number in shared}


def _share_modules(target: Side, golden: Side) -> bool:
    """Whether module paths mean anything across the two: some path other than the root stands on both sides."""
    paths = [{bare_module(side.words.get(value, "")) for value in np.unique(side.calls.module).tolist()} for side in (target, golden)]
    return bool((paths[0] & paths[1]) - {""}) or paths[0] == paths[1]
