# SPDX-License-Identifier: Apache-2.0
"""Where two programs that are written differently part, and what it is told as."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.cause.causes import (
    ARGUMENT,
    ARRIVED,
    COMPUTED,
    EXTRA,
    MISSING,
    OTHERWISE,
    REWIRED,
    UNCOMPARED,
    Cause,
)
from opscope.compare.cause.optimizer_updates import told_times
from opscope.compare.cause.start_pairs import one_family
from opscope.compare.cause.turned_parameters import turned_parameter
from opscope.compare.cause.what_matters import FORWARD
from opscope.compare.pair.arguments import difference_of
from opscope.compare.side.call_rows import inputs_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.pairing import Pairing

TURNED = "it holds golden's numbers in another order: transposed, flipped or permuted"
OFF = 1e-3  # of how far golden's parameters move: more is no rounding
CROSSED = "what it reads is in each other's place: its inputs are swapped, or hold each other's"


class Parting(msgspec.Struct, frozen=True):
    """Where two programs part first: the calls of either side at which that begins (NONE where a
    side has none), and those between them and what was met before; rank and step.
    """

    place: Place
    stage: int
    start: tuple[int, int]
    region: tuple[tuple[int, ...], tuple[int, ...]]
    row: int = NONE  # of the target's start: what came from outside and differs
    reader: int = NONE
    words: str = ""  # how what the starts do differs, where their values do not tell
    crossed: bool = False  # whether the starts read the same, in each other's place
    alike: bool = False  # whether the starts read the same, and nothing else
    moved: float = 1.0  # how many times as far as golden's all parameters move where they part
    grown: bool = False  # whether the starts only make more of a difference that was there
    heals: bool = False  # whether something agrees again that comes of either start
    compared: bool = True  # whether anything is known of what the starts read
    sized: bool = True  # whether the starts make as much, or neither only puts data in order


def cause_of(pairing: Pairing, parting: Parting) -> Cause:
    """A parting as a cause: sure only of calls of one operator, with arguments and inputs that are
    equal. What one side has alone, or with other arguments, may be the way that it is written.
    """
    mine, theirs = parting.start
    if mine < 0:
        return Cause(MISSING, parting.reader, theirs, sure=False, region=parting.region)
    if parting.row >= 0 and parting.stage == FORWARD:
        rows = np.flatnonzero(pairing.rows.target == parting.row)
        if len(rows):
            row = int(rows[0])
            return Cause(ARRIVED, mine, theirs, row, sure=False, region=parting.region)
    if theirs < 0:
        return Cause(EXTRA, mine, NONE, sure=False, region=parting.region)
    if parting.words:
        words = (parting.words,)
        kind = OTHERWISE if parting.compared else UNCOMPARED
        return Cause(kind, mine, theirs, sure=False, words=words, region=parting.region)
    if parting.crossed:
        words = (CROSSED,)
        return Cause(REWIRED, mine, theirs, sure=False, words=words, region=parting.region)
    turned = turned_parameter(pairing, mine, theirs)
    if turned != NONE:
        return Cause(
            ARRIVED, mine, theirs, turned, sure=False, words=(TURNED,), region=parting.region
        )
    differing = difference_of(pairing, mine, theirs)
    alike = one_family(pairing, mine, theirs)
    computed = COMPUTED if alike and parting.alike else OTHERWISE
    kind = ARGUMENT if alike and differing else computed
    differences = (differing,) if alike and differing else ()
    if kind == OTHERWISE and abs(parting.moved - 1) > OFF:
        differences = (told_times(parting.moved),)
    sure = kind == COMPUTED and _equal_inputs(pairing, mine, theirs)
    return Cause(kind, mine, theirs, sure=sure, words=differences, region=parting.region)


def _equal_inputs(pairing: Pairing, mine: int, theirs: int) -> bool:
    """Whether digests say that two calls read the same: statistics know no order of elements."""
    read = []
    for side, flow, call in zip(
        (pairing.target, pairing.golden), pairing.flows, (mine, theirs), strict=True
    ):
        rows = inputs_of(side, call)
        if not flow.whole[rows].all():
            return False
        read.append(flow.state[rows].tolist())
    return bool(read[0] == read[1])
