# SPDX-License-Identifier: Apache-2.0
"""What optimizers of two frameworks added to parameters, where only statistics of the parameters
before and after are known.

An update of Adam's kind divides by roots of gradients, so single elements of it may be anything
where gradients are rounding alone: the parameters after it cannot be judged by their error. The
mean of a parameter is linear in the update, though: what it moved by on one side over what it moved
by on the other is 1 for nearly all parameters, or the ratio of two learning rates.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.side.lowering import OPTIMIZERS
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.compare.cause.flags import Signs
    from opscope.compare.side.columns import Side

_Rows = dict[tuple[int, int], list[tuple[int, int]]]
LEAST = 3  # parameters that must tell: one alone may have a gradient that is rounding
OFF = 0.02  # of the update, that no rounding makes of half of all parameters
_OFF_ALIKE, _STEADY = 0.01, 0.1  # less is enough where all are off by the same, to this part of it
_NOISES = 20.0  # times the error of the step's results
_TELLING = 16.0  # times the rounding of the parameter


def told_times(ratio: float) -> str:
    """In words, that all parameters move so many times as far as golden's."""
    return (
        f"parameters move {ratio:.4g} times as far as golden's: another learning rate, or "
        "gradients that are scaled"
    )


class Updates:
    """The steps of optimizers on both sides."""

    def __init__(self, signs: Signs) -> None:
        self._pairing, self._signs = signs.pairing, signs
        pairing = signs.pairing
        self._sides = pairing.target, pairing.golden

    @cached_property
    def calls(self) -> list[int]:
        """The target's steps of optimizers that have a partner, none where both runs are of one
        framework.
        """
        target, match = self._pairing.target, self._pairing.match.target
        if self._pairing.between is None:
            return []
        steps: list[int] = np.flatnonzero(
            (match >= 0) & target.which(target.calls.op, OPTIMIZERS.__contains__)
        ).tolist()
        return steps

    def unlike(self, call: int) -> str:
        """How the updates of a call in calls differ from golden's, in words; nothing where they do
        not, or where nothing tells.
        """
        ratios = np.array([ratio for ratio in self._ratios(call) if np.isfinite(ratio)])
        if len(ratios) < LEAST:
            return ""
        off, middle = float(np.median(np.abs(ratios - 1))), float(np.median(ratios))
        noise, apart = _NOISES * self._signs.noise(call), float(np.median(np.abs(ratios - middle)))
        steady = len(ratios) > LEAST and apart <= _STEADY * off and off > _OFF_ALIKE + noise
        if off <= OFF + noise and not steady:
            return ""
        if steady or apart <= OFF * abs(middle):
            return told_times(middle)
        return (
            f"half of all parameters move by {off:.0%} more or less than golden's: another rate, "
            "momentum, decay or epsilon"
        )

    def _ratios(self, call: int) -> Iterator[float]:
        """For each parameter that a call writes, by how much its mean moved over that of
        golden's.
        """
        rows = self._pairing.rows
        for row in self._signs.rows_of(call):
            if not rows.output[row] or rows.target[row] < 0 or rows.golden[row] < 0:
                continue
            mine, theirs = (
                self._moved(0, int(rows.target[row])),
                self._moved(1, int(rows.golden[row])),
            )
            if abs(theirs) > _TELLING * self._rounding(row):
                yield mine / theirs

    def _rounding(self, row: int) -> float:
        """What rounding makes of the mean of golden's parameter: its elements in their type,
        statistics in float32.
        """
        tensors, golden_row = self._pairing.golden.tensors, int(self._pairing.rows.golden[row])
        root = math.sqrt(max(int(tensors.size[golden_row]), 1))
        return (
            max(2.0**-24, float(self._pairing.rows.roundoff[row]) / root)
            * float(np.nan_to_num(tensors.l2norm[golden_row]))
            / root
        )

    def _moved(self, number: int, row: int) -> float:
        """How far the mean of a parameter moved; NaN where it is not known what it was before."""
        side = self._sides[number]
        base = side if side.base is None else side.base
        base_row = row if side.places is None else int(side.places[row])
        tensors, calls = base.tensors, base.calls
        at = int(tensors.call[base_row])
        step, known = (
            int(calls.step[at]),
            self._known[number].get((int(calls.process[at]), int(tensors.named[base_row])), ()),
        )
        before = [earlier for earlier, in_step in known if earlier < base_row and in_step != step]
        return float(tensors.mean[base_row] - tensors.mean[before[-1]]) if before else math.nan

    @cached_property
    def _known(self) -> tuple[_Rows, _Rows]:
        return _parameters(self._sides[0]), _parameters(self._sides[1])


def _parameters(side: Side) -> _Rows:
    """The rows of each parameter by process and name, each with the step whose optimizer it stands
    in, NONE where it stands in none.
    """
    base = side if side.base is None else side.base
    tensors, calls = base.tensors, base.calls
    optimizes = base.in_phase("optimizer")
    parameters: _Rows = defaultdict(list)
    for row in np.flatnonzero(tensors.parameter & (tensors.named != 0)).tolist():
        at = int(tensors.call[row])
        parameters[int(calls.process[at]), int(tensors.named[row])].append(
            (row, int(calls.step[at]) if optimizes[at] else NONE)
        )
    return parameters
