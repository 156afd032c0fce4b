# SPDX-License-Identifier: Apache-2.0
"""Names for weights where nothing is trained: plain tensors that a program loads, and that hold
what parameters of the other side do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.side.columns import ABSENT
from opscope.operators.catalogue import traits_of
from opscope.run.hashes import distinct, mixed

if TYPE_CHECKING:
    from opscope.arrays import Bools, Words
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow

FEWEST = 8  # elements of weights that are the other side's by more than chance


def with_weights(sides: tuple[Side, Side], flows: tuple[Flow, Flow]) -> tuple[Side, Side]:
    """Both sides, with a name for each tensor that is a parameter, by what it holds: of one side
    that has none what the other's parameters hold, of two such what either loads.
    """
    telling = [_telling(side) for side in sides]
    held = [
        distinct(flow.state[rows & _loaded(side)])
        for side, flow, rows in zip(sides, flows, telling, strict=True)
    ]
    named = [
        _named(side, flow, rows, other)
        for side, flow, rows, other in zip(sides, flows, telling, held[::-1], strict=True)
    ]
    return named[0], named[1]


def _telling(side: Side) -> Bools:
    """Rows of floats of which the content is one by more than chance."""
    tensors = side.tensors
    floats: Bools = (tensors.min_int == ABSENT) & np.isfinite(tensors.l2norm)
    return floats & (tensors.size >= FEWEST) & (tensors.min < tensors.max)


def _loaded(side: Side) -> Bools:
    """Rows of parameters that have names; where none has, of what a call brings in from outside."""
    tensors = side.tensors
    parameters: Bools = tensors.parameter & (tensors.named != 0)
    if parameters.any():
        return parameters
    brings = side.which(side.calls.op, lambda op: traits_of(op).brings)
    return tensors.output & brings[tensors.call]


def _named(side: Side, flow: Flow, telling: Bools, held: Words) -> Side:
    """A side of which no parameter has a name, with names for what holds such contents, and for
    what is a view of that.
    """
    tensors = side.tensors
    if (tensors.parameter & (tensors.named != 0)).any():
        return side
    made = np.where(flow.source_row < 0, np.arange(len(tensors)), flow.source_row)
    weights = np.flatnonzero(telling & np.isin(flow.state, held))
    weights = weights[np.argsort(-tensors.size[weights], kind="stable")]  # parts are no others
    sources, first = np.unique(made[weights], return_index=True)
    own = np.isin(made, sources)  # in inference mode each view has a version of its own
    whole = weights[first[np.searchsorted(sources, made[own])]]
    names = tensors.named.copy()
    names[own] = mixed(flow.state[whole])
    tensors = msgspec.structs.replace(tensors, named=names, parameter=tensors.parameter | own)
    return msgspec.structs.replace(side, tensors=tensors)
