# SPDX-License-Identifier: Apache-2.0
"""What a step left behind for a later one: an optimizer's state, or parameters that it updated.

Parameters that are judged where each step ends are left out: what is let them there may be what an
optimizer makes of gradients that are rounding alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.cause.walks import LEAST
from opscope.compare.cause.what_matters import PARAMETER
from opscope.compare.pair.sketches import sketch
from opscope.compare.side.call_rows import handed_on, inputs_of, outputs_of, places_of, readers_of
from opscope.operators.catalogue import family, traits_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.arrays import Bools, Floats
    from opscope.compare.cause.what_matters import Place
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.pair.parameters import Names
    from opscope.compare.pair.sketches import Sketch
    from opscope.compare.side.columns import Side

    Starts = tuple[int, int]  # a call of either side
    Ends = tuple[list[int], list[int]]  # rows of either side
    State = tuple[Place, int, int]  # of a parameter: place, stage and name

MOST = 8  # calls that prepare what another reads


class EarlierSteps:
    """The updates of two programs: their calls after the first gradients of each step, those of a
    step without any, which only evaluates, and what writes to parameters before them.
    """

    def __init__(self, pairing: Pairing, names: list[Names]) -> None:
        self._sides = pairing.target, pairing.golden
        self._names = names
        self._known = [{name for pair in names for name in pair[number]} for number in (0, 1)]
        self._flows = pairing.flows
        self._first = [_first_backward(side) for side in self._sides]

    def update(self, starts: Starts) -> bool:
        """Whether calls of both sides come after the first gradients of their steps."""
        return all(map(self._updates, (0, 1), starts))

    def leaves(self, starts: Starts, apart: list[Bools]) -> bool:
        """Whether calls of both sides come after the first gradients of their steps, or one of them
        writes what is apart to a state, as a norm does to its running statistics.
        """
        columns = zip(self._sides, apart, starts, strict=True)
        return self.update(starts) or any(
            call >= 0 and (flags & side.tensors.parameter)[outputs_of(side, call)].any()
            for side, flags, call in columns
        )

    def left(self, starts: Starts, apart: list[Bools]) -> tuple[Place, Ends] | None:
        """The rows in which updates of earlier steps made all that two calls read and that is
        apart, and the place of the target's last; None where anything else of it is.
        """
        mine, theirs = (self._left(number, starts[number], apart[number]) for number in (0, 1))
        if not mine or not theirs:
            return None
        calls, last = self._sides[0].calls, self._sides[0].tensors.call[mine[-1]]
        return (int(calls.rank[last]), int(calls.step[last])), (mine, theirs)

    def trained(
        self, starts: Starts, apart: list[Bools], last: tuple[dict[State, int], ...]
    ) -> tuple[Place, Ends] | None:
        """The rows in which an earlier step left a parameter on both sides, if one of two calls
        reads it and it is apart, and the place of that step. last: what steps left of parameters.
        """
        for number, start in enumerate(starts):
            side = self._sides[number]
            for row in inputs_of(side, start) if start >= 0 else ():
                name, made = int(side.tensors.named[row]), int(self._flows[number].source_row[row])
                names = next((pair for pair in self._names if name in pair[number]), None)
                if names is None or made < 0 or not apart[number][row]:
                    continue
                (place,) = places_of(side, np.array([made]))
                mine, theirs = (
                    [known.get((place, PARAMETER, name), NONE) for name in some]
                    for known, some in zip(last, names, strict=True)
                )
                if min(*mine, *theirs) >= 0 and place[1] < side.calls.step[start]:
                    return place, (mine, theirs)
        return None

    def even(self, starts: Starts) -> bool:
        """Whether two calls behind the backward pass make rounding of roundings: none is steep, as
        a quotient is, or writes to a parameter what it makes of more than that.
        """
        columns = zip(self._sides, starts, strict=True)
        return self.update(starts) and all(
            traits_of(family(side.operator(call)).removeprefix("_foreach_")).error != "steep"
            and side.words.get(int(side.calls.phase[call])) != "backward"
            and not (side.tensors.parameter[outputs_of(side, call)].any() and _of_more(side, call))
            for side, call in columns
        )

    def _updates(self, number: int, call: int) -> bool:
        side, first = self._sides[number], self._first[number]
        trains = min(first.values(), default=call + 1)
        if call < trains:
            return False
        written = side.tensors.parameter[outputs_of(side, call)].any()
        return bool(written) or call >= first.get(int(side.calls.step[call]), trains)

    def _left(self, number: int, start: int, apart: Bools) -> list[int]:
        side = self._sides[number]
        made = self._made_of(number, start, apart)
        steps = side.calls.step
        for row in made:
            call = int(side.tensors.call[row]) if row >= 0 else NONE
            judged = call >= 0 and int(side.tensors.named[row]) in self._known[number]
            # what is written before a step's backward pass belongs to the step before
            trains = self._first[number].get(int(steps[start]), len(steps))
            late = steps[call] == steps[start] and call >= trains
            if judged or not self._updates(number, call) or late:
                return []
        return sorted(made)

    def _made_of(self, number: int, start: int, apart: Bools) -> set[int]:
        """The rows in which that was made what a call reads and what is apart, of what is prepared
        for it in its step, as a scale of what a norm kept, those of what that reads.
        """
        side, made, seen = self._sides[number], set[int](), set[int]()
        waiting = self._read(number, start, apart)
        while waiting:
            row = self._whence(number, waiting.pop())
            call = int(side.tensors.call[row]) if row >= 0 else NONE
            here = call >= 0 and side.calls.step[call] == side.calls.step[start]
            read = [other for other in inputs_of(side, call) if apart[other]] if here else []
            if read and call not in seen and len(seen) < MOST and not self._updates(number, call):
                seen.add(call)
                waiting.extend(read)
            elif call not in seen:
                made.add(row)
        return made

    def _read(self, number: int, start: int, apart: Bools) -> list[int]:
        """The rows that are apart of what a call reads, or where it only puts data in order, what
        reads that.
        """
        side, producer = self._sides[number], self._flows[number].producer
        call, before = start, set[int]()
        while call >= 0 and call not in before:
            read = [
                row
                for row in inputs_of(side, call)
                if apart[row] and int(producer[row]) not in before
            ]
            traits = traits_of(side.operator(call))
            if read or not (traits.moves or traits.idle):
                return read
            before.add(call)
            readers = readers_of(side, outputs_of(side, call))
            call = next((reader for reader in readers if reader > call), NONE)
        return []

    def _whence(self, number: int, row: int) -> int:
        """The row in which a call computed what a row holds, or is a view of."""
        side, sources = self._sides[number], self._flows[number].source_row
        source = int(sources[row])
        while source >= 0 and (read := handed_on(side, int(side.tensors.call[source]))) != NONE:
            source = int(sources[read])
        return source


def read_crosswise(sides: tuple[Side, Side], starts: Starts, limits: tuple[Floats, Floats]) -> Ends:
    """The rows of what each of two calls reads that is none of what the other does of its size, of
    which that reads no fewer (an average may be one call or two): a step may leave behind what
    another step of the other side left, which agrees with that.
    """
    read = [
        {row: sketch(side, [row]) for row in inputs_of(side, call)} if min(starts) >= 0 else {}
        for side, call in zip(sides, starts, strict=True)
    ]
    mine, theirs = (
        [
            row
            for row, content in read[number].items()
            if content.size >= LEAST
            and (errors := _errors(content, read[1 - number]))
            and len(errors) >= len(_errors(content, read[number]))
            and min(errors) > limits[number][row]
        ]
        for number in (0, 1)
    )
    return mine, theirs


def _errors(content: Sketch, others: dict[int, Sketch]) -> list[float]:
    """How far a content is from each of others of its size."""
    return [content.error(other) for other in others.values() if other.size == content.size]


def _of_more(side: Side, call: int) -> bool:
    """Whether a call reads several tensors, not parameters alone, as for an average of them."""
    read = inputs_of(side, call)
    return len(read) > 1 and not side.tensors.parameter[read].all()


def _first_backward(side: Side) -> dict[int, int]:
    """The first call of the backward pass in each step."""
    backward = np.flatnonzero(side.in_phase("backward"))
    steps, first = np.unique(side.calls.step[backward], return_index=True)
    return dict(zip(steps.tolist(), backward[first].tolist(), strict=True))
