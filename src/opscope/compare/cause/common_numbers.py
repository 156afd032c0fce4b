# SPDX-License-Identifier: Apache-2.0
"""Numbers that two programs read out, one for one, where neither trains."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opscope.compare.cause.read_out import CLOSE, model_numbers, off_by
from opscope.compare.side.call_rows import places_of
from opscope.compare.side.records import call_records

if TYPE_CHECKING:
    from opscope.arrays import Floats, Ints
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.meetings import Meetings
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.side.columns import Side

MOST_PARTS = 16  # numbers that one side reads out for one of the other's


class Number(NamedTuple):
    """A number of both sides: its rank and step, the rows that hold it or its parts on either, how
    many times the other's it is, and whether it is the same.
    """

    place: Place
    mine: list[int]
    theirs: list[int]
    times: float
    same: bool


class _Series(NamedTuple):
    """Numbers in the order in which they are read out, the places of each or of its parts, and
    whether they are all that a line reads out.
    """

    values: Floats
    parts: Ints
    whole: bool


def numbers_in_common(pairing: Pairing, meetings: Meetings) -> list[Number] | None:
    """The numbers that models of both sides made and both read out, one after the other; of several
    lines that read out as many, those of the two that are nearest to one another. Several numbers
    of one side, or their sum or mean, are one of the other's if any of them is the same, or all are
    close: else they may be anything. None where there are none.
    """
    sides, flows = (pairing.target, pairing.golden), pairing.flows
    rows = [model_numbers(side, flow) for side, flow in zip(sides, flows, strict=True)]
    if not any(map(len, rows)):
        return []
    places = [places_of(side, some) for side, some in zip(sides, rows, strict=True)]
    values = [side.tensors.max[some] for side, some in zip(sides, rows, strict=True)]
    lines = [_by_line(side, some) for side, some in zip(sides, rows, strict=True)]
    near = meetings.limit[0][rows[0]].max(initial=0.0)
    found = [
        (off_by(mine.values, theirs.values), mine, theirs) for mine, theirs in _pairs(values, lines)
    ]
    found = [
        (off, mine, theirs)
        for off, mine, theirs in found
        if (mine.whole and theirs.whole) or off.min() <= near or off.max() <= CLOSE
        if [places[0][at] for at in mine.parts[:, 0]]
        == [places[1][at] for at in theirs.parts[:, 0]]
    ]
    if not found:
        return None
    off, mine, theirs = min(found, key=lambda each: float(each[0].mean()))
    with np.errstate(divide="ignore", invalid="ignore"):
        times = mine.values / theirs.values
    return [
        Number(places[0][int(own[0])], rows[0][own].tolist(), rows[1][other].tolist(), *rest)
        for own, other, *rest in zip(
            mine.parts, theirs.parts, times.tolist(), (off <= near).tolist(), strict=True
        )
    ]


def _by_line(side: Side, rows: Ints) -> list[Ints]:
    """Places among some rows: of all, and of those that each line of the program made."""
    calls = side.tensors.call[rows].tolist()
    known = call_records(side, calls)
    lines: dict[str | None, list[int]] = {}
    for at, call in enumerate(calls):
        lines.setdefault(known[call].source, []).append(at)
    every = [np.arange(len(calls))] if len(lines) > 1 else []
    return [*every, *map(np.array, lines.values())]


def _pairs(values: list[Floats], lines: list[list[Ints]]) -> Iterator[tuple[_Series, _Series]]:
    """What lines of both sides read out as often, or would, if several numbers of one were one."""
    for mine, theirs in product(*lines):
        often = min(len(mine), len(theirs))
        if often:
            yield from product(_series(values[0], mine, often), _series(values[1], theirs, often))


def _series(values: Floats, line: Ints, often: int) -> Iterator[_Series]:
    """What a line reads out as so many numbers: as they are, one of several, their sum or mean."""
    several, odd = divmod(len(line), often)
    if odd or several > MOST_PARTS:
        return
    turns = line.reshape(often, several)
    for part in range(several):
        yield _Series(values[turns[:, part]], turns[:, part : part + 1], several == 1)
    if several > 1:
        yield _Series(values[turns].sum(1), turns, whole=False)
        yield _Series(values[turns].mean(1), turns, whole=False)
