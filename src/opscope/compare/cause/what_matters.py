# SPDX-License-Identifier: Apache-2.0
"""What matters in the training of a model: gradients, and what parameters are after a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.pair.parameters import first_read
from opscope.compare.side.call_rows import places_of, updating
from opscope.compare.side.contents import bears_identities
from opscope.operators.catalogue import traits_of
from opscope.run.hashes import mixed

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints, Words
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

Place = tuple[int, int]  # rank and step
# In the order in which a step comes to them: results, gradients, gradients as the optimizer gets
# them, parameters.
FORWARD, GRADIENT, CLIPPED, PARAMETER = range(4)
FINER = 0.125  # of the limits, where a difference that is sure is followed


def last_states(side: Side, flow: Flow) -> dict[tuple[Place, int, int], int]:
    """The row of the last gradient of each parameter, if need be as an optimizer reads it (of what
    is made behind its last update in a step, where there is one, no parameter comes), and of the
    last content that it was given after a model read it (before, it is loaded; a buffer may be
    bound anew; a part of it is none, nor is a flat tensor that it is part of), by place, stage,
    name. A view gives a parameter nothing, nor a gradient behind its backward pass.
    """
    tensors, calls = side.tensors, side.calls
    views = side.which(calls.op, lambda op: traits_of(op).view)
    backward = side.in_phase("backward")
    first = first_read(side)
    names = np.array(sorted(first), dtype=np.uint64)
    read = np.array([first[name] for name in names.tolist()] or [0], dtype=np.int64)
    unseen = ~tensors.output & ~tensors.parameter
    if bears_identities(side):
        unseen &= (flow.producer < 0) & updating(side)[tensors.call]
    rows = np.flatnonzero(
        (tensors.output | unseen)
        & (tensors.named != 0)
        & ~tensors.constant
        & calls.leaf[tensors.call]
        & ~(views[tensors.call] & (tensors.parameter | ~backward[tensors.call]))
        & np.isfinite(tensors.l2norm)
        & ~_made_in_hooks(side, backward)
    )
    at = np.searchsorted(names, tensors.named[rows])
    own = read[np.minimum(at, len(read) - 1)]
    resized = tensors.size[rows] != tensors.size[own]
    loaded = (rows <= own) & tensors.parameter[rows]  # of a sparse gradient a row holds a part
    rows = rows[(at == len(names)) | ~(loaded | resized)]
    # what an optimizer reads may be clipped, where nobody shows by whom
    graded = backward[tensors.call[rows]] | (unseen[rows] & bears_identities(side))
    stages = np.where(tensors.parameter[rows], PARAMETER, np.where(graded, GRADIENT, CLIPPED))
    named = tensors.named[rows].tolist()
    entries = [*zip(places_of(side, rows), stages.tolist(), named, rows.tolist(), strict=True)]
    last = {(place, name): row for place, stage, name, row in entries if stage == PARAMETER}
    return {
        (place, stage, name): row
        for place, stage, name, row in entries
        if stage == PARAMETER or row < last.get((place, name), len(tensors))
    }


def _made_in_hooks(side: Side, backward: Bools) -> Bools:
    """Rows of gradients that are made of gradients and parameters alone amid a backward pass, as by
    a hook that decays one and steps: what a pass collects comes of something else.
    """
    tensors = side.tensors
    several = tensors.size > 1
    computed = tensors.call[~tensors.output & several & (tensors.named == 0)]
    hooked = backward & (side.calls.forward < 0)
    hooked[computed] = False
    pairs = mixed(tensors.call.astype(np.uint64), tensors.storage.astype(np.uint64))
    made = hooked[tensors.call] & tensors.output & several & ~tensors.parameter
    there: Bools = np.isin(pairs, pairs[~tensors.output & hooked[tensors.call]])
    return made & ~there


def settled(side: Side, flow: Flow, known: Words, alone: Words, stage: int) -> Ints:
    """Rows of parameters known on both sides, and of their gradients, that agreed before a stage,
    though the other side holds them as one, or in several; not what was rewritten
    meanwhile, nor gradients that no backward pass made where one side alone has such clipped ones.
    """
    tensors, calls = side.tensors, side.calls
    rows = np.flatnonzero((tensors.named != 0) & np.isin(tensors.named, known))
    phase = {
        word: side.which(calls.phase, lambda text, word=word: text == word)  # type: ignore[misc]
        for word in ("backward", "optimizer")
    }
    backward = np.flatnonzero(phase["backward"])
    last: dict[tuple[int, int], int] = dict(
        zip(
            zip(calls.rank[backward].tolist(), calls.step[backward].tolist(), strict=True),
            backward.tolist(),
            strict=True,
        )
    )
    owner, producer = tensors.call[rows], flow.producer[rows]
    made = np.where(tensors.output[rows], owner, producer)
    ends = np.array(
        [
            last.get(place, len(calls))
            for place in zip(calls.rank[owner].tolist(), calls.step[owner].tolist(), strict=True)
        ],
        dtype=np.int64,
    )
    parameter = tensors.parameter[rows]
    computed = (made >= 0) & phase["backward"][np.maximum(made, 0)]
    compared = (stage == PARAMETER) & ~np.isin(tensors.named[rows], alone)
    gradient = ~parameter & (compared | ((stage >= CLIPPED) & computed))
    agreed: Ints = rows[(parameter & ~_rewritten(side, rows, made) & (made < ends)) | gradient]
    return agreed


def _rewritten(side: Side, rows: Ints, made: Ints) -> Bools:
    """Which rows are of parameters that were given what they hold in the rows' own steps, since a
    model first read them: a norm may start what it scales by from its first batch.
    """
    tensors, calls = side.tensors, side.calls
    first = {name: int(tensors.call[row]) for name, row in first_read(side).items()}
    read = [first.get(name, len(calls)) for name in tensors.named[rows].tolist()]
    now = calls.step[np.maximum(made, 0)] == calls.step[tensors.call[rows]]
    rewritten: Bools = now & (made >= np.array(read, dtype=np.int64))
    return rewritten
