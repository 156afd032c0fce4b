# SPDX-License-Identifier: Apache-2.0
"""How far two trainings have gone apart step by step, beside a third that differs from golden in
rounding alone.

Any two trainings that round otherwise part, slowly at first and then as the loss surface makes of
it, so no bound of an operator tells how far is too far. The noise run does: what counts is

    d(s) / max(n(0), ..., n(s))

where d and n are the medians, over the parameters that optimizers write in step s, of the relative
differences of target and noise run from golden: gradients that are rounding alone (an attention's
bias of keys under Adam) make of single parameters what they like. The target leaves the noise where
that is above FACTOR for LASTING steps in a row, up to the end or to where the noise run is a
training of its own (APART).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.side.optimizer_calls import optimizing
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Floats, Ints, Words
    from opscope.compare.pair.pairing import Pairing

# Trainings of an MLP, a transformer and a conv net over 300 steps, healthy ones with products
# summed backwards, two threads, oneDNN off, each beside each: at most 6.05.
FACTOR = 10.0
LASTING = 8  # steps that the target has to stay away
APART = 2.0**-6  # of the parameters' size: what no longer grows out of roundings
LEAST = 2.0**-26  # differences that roundings of single elements make of a norm in float32
SHARE = 0.5  # of the writes that differ from golden's, in a run that rounds otherwise


class Written(msgspec.Struct, frozen=True):
    """The last writes of parameters in each step: the step, the parameter's name as a hash, the row
    of the target's tensors and its relative difference from golden; in the order of steps.
    """

    step: Ints
    name: Words
    row: Ints
    error: Floats


class Drift(msgspec.Struct, frozen=True):
    """By step that all three runs have: the distances from golden of target and noise run.

    alike: the noise run is golden itself, or nearly, and tells nothing of roundings.
    """

    steps: Ints
    target: Floats
    noise: Floats
    alike: bool = False

    @property
    def envelope(self) -> Floats:
        """The largest distance that rounding had come to by each step."""
        return np.maximum(np.maximum.accumulate(self.noise), LEAST)

    @property
    def ratio(self) -> Floats:
        """How many times as far the target is as rounding explains."""
        return self.target / self.envelope

    @property
    def judged(self) -> int:
        """Steps, from the first on, in which the noise run is still the same training as golden."""
        return int(np.count_nonzero(self.envelope < APART))

    @property
    def leaves(self) -> int:
        """The place of the first step beyond the noise, or NONE."""
        far = np.flatnonzero(lasting(self.ratio[: self.judged]) > FACTOR)
        return int(far[0]) if len(far) and not self.alike else NONE

    def noise_at(self, step: int) -> float:
        """How far rounding took the noise run in a step, over all its parameters; 0 where it wrote
        none.
        """
        return float(self.noise[self.steps == step].sum())

    @property
    def most(self) -> float:
        """The largest ratio that lasts: single steps, the first ones above all, are chance."""
        return float(lasting(self.ratio[: self.judged]).max(initial=0.0))


def written(pairing: Pairing) -> Written:
    """What optimizers write to parameters in each step, of all ranks; empty where neither side
    names any.
    """
    rows, tensors, calls = pairing.rows, pairing.target.tensors, pairing.target.calls
    paired = np.flatnonzero(rows.output & (rows.target >= 0) & (rows.golden >= 0))
    target_row = rows.target[paired].astype(np.int64)
    chosen = (
        tensors.parameter[target_row]
        & (tensors.named[target_row] != 0)
        & ~np.isnan(rows.error[paired])
    )
    chosen &= optimizing(pairing.target)[tensors.call[target_row]]
    paired, target_row = paired[chosen], target_row[chosen]
    owner = tensors.call[target_row]
    step, name, rank = calls.step[owner], tensors.named[target_row], calls.rank[owner]
    order = np.lexsort((calls.index[owner], name, rank, step))
    step, name, rank, target_row, paired = (
        x[order] for x in (step, name, rank, target_row, paired)
    )
    last = np.ones(len(step), dtype=np.bool_)
    last[:-1] = (step[1:] != step[:-1]) | (name[1:] != name[:-1]) | (rank[1:] != rank[:-1])
    return Written(step[last], name[last], target_row[last], rows.error[paired][last])


def drift(target: Written, noise: Written) -> Drift:
    """The distances of both from golden, in the steps that both have."""
    steps = np.intersect1d(target.step, noise.step)
    alike = np.count_nonzero(noise.error) < SHARE * len(noise.error)
    return Drift(steps, _by_step(target, steps), _by_step(noise, steps), alike=bool(alike))


def lasting(ratio: Floats) -> Floats:
    """The least of each so many steps in a row; empty where there are fewer."""
    if len(ratio) < LASTING:
        return ratio[:0]
    least: Floats = np.lib.stride_tricks.sliding_window_view(ratio, LASTING).min(axis=1)
    return least


def explained(pairing: Pairing, noise: Pairing, call: int, *, least: float) -> bool:
    """Whether no tensor of a call is further from golden than rounding took the noise run at that
    very tensor, or than least; FACTOR holds here too. Tensors of which nothing is known say
    nothing, and a noise run that is a training of its own explains nothing.
    """
    rows, other = pairing.rows, noise.rows
    own = np.flatnonzero((rows.target_call == call) & (rows.target >= 0) & (rows.golden >= 0))
    shared, met, at = np.intersect1d(
        rows.golden[own], np.where(other.target >= 0, other.golden, NONE), return_indices=True
    )
    met, at = met[shared >= 0], at[shared >= 0]
    error, noisy = rows.error[own[met]], np.maximum(other.error[at], max(least, LEAST))
    allowed = np.where(noisy >= APART, 0.0, FACTOR * noisy)
    known = ~np.isnan(error) & ~np.isnan(allowed)
    return len(met) == len(own) and bool(known.any()) and bool((error <= allowed)[known].all())


def _by_step(updates: Written, steps: Ints) -> Floats:
    """Median of the differences of each step."""
    order = np.lexsort((updates.error, updates.step))
    step, error = updates.step[order], updates.error[order]
    begin, end = np.searchsorted(step, steps), np.searchsorted(step, steps, side="right")
    medians: Floats = (error[(begin + end - 1) // 2] + error[(begin + end) // 2]) / 2
    return medians


def strayed(target: Written, noise: Written, step: int, *, most: int) -> list[tuple[int, float]]:
    """The parameters that are furthest beyond the noise at a step: rows of the target, and how many
    times as far as the noise run had come by then, the furthest first.
    """
    there = noise.step <= step
    names, inverse = np.unique(noise.name[there], return_inverse=True)
    so_far = np.full(len(names), LEAST)
    np.maximum.at(so_far, inverse, noise.error[there])
    now = np.flatnonzero((target.step == step) & np.isin(target.name, names))
    ratio = target.error[now] / so_far[np.searchsorted(names, target.name[now])]
    order = np.argsort(-ratio, kind="stable")[:most]
    return [(int(target.row[now[at]]), float(ratio[at])) for at in order]
