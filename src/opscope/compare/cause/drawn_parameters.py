# SPDX-License-Identifier: Apache-2.0
"""Parameters that begin with random numbers which the other program has not: not loaded, or not
drawn alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.compare.cause.causes import EXTRA, Cause
from opscope.compare.pair.parameters import first_read
from opscope.compare.side.call_rows import readers_of
from opscope.operators.catalogue import traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.pair.parameters import Names
    from opscope.compare.side.columns import Side

DRAWN = "it reads a parameter that is drawn at random here, and that golden does not begin with"


def drawn_anew(pairing: Pairing, causes: list[Cause], names: list[Names]) -> list[Cause]:
    """The causes that draw what parameters of the target begin with and golden's do not; where none
    of them does, the first call that reads such a parameter. names: parameters of both.
    """
    readers = _readers(pairing, {name for pair in names for name in pair[0]})
    own = [cause for cause in causes if cause.target in readers]
    if own or not readers:
        return own
    drawing, reader = min(readers.items(), key=lambda entry: entry[1])
    region = (reader, drawing), ()
    return [Cause(EXTRA, reader, NONE, sure=False, words=(DRAWN,), region=region)]


def _readers(pairing: Pairing, known: set[int]) -> dict[int, int]:
    """The first calls that compute with parameters that are not known, by those that drew these."""
    side, flow = pairing.target, pairing.flows[0]
    readers: dict[int, int] = {}
    for name, row in first_read(side).items():
        drawing = int(flow.producer[row])
        if name not in known and drawing >= 0 and traits_of(side.operator(drawing)).random:
            readers[drawing] = _computing(side, row)
    return readers


def _computing(side: Side, row: int) -> int:
    """The first call from a row on that reads what it holds and does not only hand it on; else the
    row's own.
    """
    own = int(side.tensors.call[row])
    readers = (call for call in readers_of(side, [row]) if call >= own)
    return next((call for call in readers if not traits_of(side.operator(call)).idle), own)
